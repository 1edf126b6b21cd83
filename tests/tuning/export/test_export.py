"""Exports carry their evidence, fit the version, and are read back by YAML and Hydra."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import yaml
from hypothesis import example, given, reject
from hypothesis import strategies as st

from kernels.model.context import ATTENTION
from packing.sources.errors import SourceError
from packing.sources.spec import SourceSpec
from tuning.areal.backend import Engine
from tuning.areal.config import ArealConfig
from tuning.areal.schema import EXPORT_VERSIONS, Version, table
from tuning.doctor.doctor import check
from tuning.export.export import (
    FILE_NAMES,
    FORMS,
    LANGUAGES,
    Evidence,
    ExportError,
    Form,
    changes,
    override_lines,
    render,
    settings,
)
from tuning.jobs.points import Point, Question
from tuning.plan.from_config import fill_plan
from tuning.plan.plan import TuningPlan

PLAN = TuningPlan(
    prompts_per_step=32,
    samples_per_prompt=8,
    dp_size=4,
    tp_size=2,
    ppo_n_minibatches=2,
    max_tokens_per_mb=16384,
    model="qwen3-8b",
    gradient_checkpointing=True,
)


def timed(plan: TuningPlan, device: str) -> Point:
    asked = Question.of(plan, "tree", plan.max_tokens_per_mb, "abcd", device, "2.9")
    return Point(
        asked,
        "measured",
        step_s=1.5,
        p20_s=1.4,
        p80_s=1.6,
        repeats=5,
        original_tokens=100_000,
        memory_bytes=int(70.5 * 2**30),
        measured_at="2026-11-30",
    )


EVIDENCE = Evidence(
    data="abcd",
    rows=256,
    tokens=100_000,
    packing={"trees": 7, "tree_token_ratio": 0.3125},
    measured=timed(PLAN, "H200"),
    flat_s=3.0,
    versions={"torch": "2.9"},
    date="2026-11-30",
    link="http://127.0.0.1:8501/export?cap=16384",
)
ENGINES: tuple[Engine, ...] = ("fsdp", "megatron", "archon")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_starts_with_its_evidence(form: Form) -> None:
    head = [line for line in render(PLAN, EVIDENCE, form=form).splitlines() if line[:1] == "#"]
    text = "\n".join(head)
    for words in ("hash abcd", PLAN.key, "trees 7", "0.3125", "1.500 s (1.400-1.600)", "H200"):
        assert words in text
    for words in ("flat packing 3.000 s", "torch 2.9", "2026-11-30", EVIDENCE.link):
        assert words in text
    assert form in FILE_NAMES and form in LANGUAGES


def test_what_was_not_measured_is_called_so() -> None:
    assert "# step: not measured" in render(PLAN, replace(EVIDENCE, measured=None))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("target", EXPORT_VERSIONS)
def test_only_keys_of_the_version_are_written(engine: Engine, target: Version) -> None:
    plan = replace(PLAN, engine=engine)
    alone = yaml.safe_load(render(plan, EVIDENCE, target))
    assert set(alone) <= set(table(target, "PPOActorConfig"))
    assert alone["ppo_n_minibatches"] == 2 and "loads as PPOActorConfig" in render(plan, EVIDENCE)
    inside = yaml.safe_load(render(plan, EVIDENCE, target, "fragment"))["actor"]
    assert set(inside) <= set(table(target, "PPOActorConfig"))
    assert inside["ppo_n_minibatches"] == 2
    assert inside["mb_spec"] == {"max_tokens_per_mb": 16384}
    assert ("tree_training_mode" in inside) == (target == "tree_training_mode")
    assert ("enable_tree_training" in inside) == (target != "tree_training_mode")
    assert inside.get("archon") == ({"enable_compile": True} if engine == "archon" else None)
    assert inside.get("megatron") == ({"bridge_type": "mbridge"} if engine == "megatron" else None)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("target", EXPORT_VERSIONS)
def test_the_doctor_finds_no_error_in_an_export(engine: Engine, target: Version) -> None:
    text = render(replace(PLAN, engine=engine, ppo_n_minibatches=1), EVIDENCE, target)
    report = check(text, version=target)
    assert report.tree_on and report.errors == ()


def test_a_reference_pass_gets_the_tree_settings_and_no_checkpoints() -> None:
    text = render(PLAN, EVIDENCE, form="fragment", with_ref=True)
    ref = yaml.safe_load(text)["ref"]
    assert ref == {
        "enable_tree_training": True,
        "pad_to_maximum": True,
        "mb_spec": {"max_tokens_per_mb": 16384},
    }
    assert "ref" not in yaml.safe_load(render(PLAN, EVIDENCE, form="fragment"))


def test_overrides_say_the_same_as_the_fragment() -> None:
    lines = override_lines(PLAN, with_ref=True)
    assert lines[0] == "++actor.enable_tree_training=true"
    text = render(PLAN, EVIDENCE, form="overrides", with_ref=True)
    assert re.findall(r"\+\+\S+", text) == lines
    assert len(lines) == len(changes(PLAN, with_ref=True))


@pytest.mark.parametrize("form", ["yaml", "fragment", "overrides", "python"])
@pytest.mark.parametrize("target", EXPORT_VERSIONS)
def test_with_trees_off_flat_packing_is_written_at_the_same_cap(
    target: Version, form: Form
) -> None:
    plan = replace(PLAN, engine="archon")
    text = render(plan, EVIDENCE, target, form, with_ref=True, trees=False)
    assert "16384" in text and "compile" not in text
    if form in ("yaml", "fragment"):
        found = yaml.safe_load(text)
        found = found if form == "yaml" else found["actor"]
        off: dict[str, object] = {"tree_training_mode": "disabled"}
        if target != "tree_training_mode":
            off = {"enable_tree_training": False}
        assert found.items() >= (off | {"pad_to_maximum": False}).items()
        assert not check(text, version=target).tree_on
    if form == "yaml":
        assert check(text, version=target).errors == ()


def test_a_random_model_is_not_written_as_a_path() -> None:
    text = render(replace(PLAN, model="tiny"), EVIDENCE)
    assert "path" not in yaml.safe_load(text) and "random model tiny" in text
    assert yaml.safe_load(render(PLAN, EVIDENCE))["path"] == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_tokens_per_mb": 8000}, "8000; choose a multiple of 128"),
        ({"prompts_per_step": 30}, "do not divide"),
    ],
)
def test_a_plan_that_areal_would_refuse_is_not_exported(change: dict, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        render(replace(PLAN, **change), EVIDENCE)


def test_an_unknown_target_or_form_is_refused() -> None:
    with pytest.raises(ExportError, match="choose one of"):
        render(PLAN, EVIDENCE, "0.5")  # type: ignore[arg-type]
    with pytest.raises(ExportError, match="choose one of"):
        render(PLAN, EVIDENCE, form="xml")  # type: ignore[arg-type]


@example(location="0", link="", device="", model="\x85")  # a line break to some YAML readers
@given(location=st.text(min_size=1), link=st.text(), device=st.text(), model=st.text(min_size=1))
def test_no_name_from_outside_becomes_part_of_the_config(
    location: str, link: str, device: str, model: str
) -> None:
    try:
        source = SourceSpec("file", location)
    except SourceError:
        reject()
    plan = replace(PLAN, source=source, model=model)
    evidence = Evidence(measured=timed(plan, device), link=link)
    try:
        read = yaml.safe_load(render(plan, evidence))
    except yaml.reader.ReaderError:
        return  # a character that no YAML may hold, such as a lone surrogate
    plain = {"path": model} if model not in ("tiny", "small") else {}
    assert {k: v for k, v in read.items() if k == "path"} == plain
    expected = {"experiment_name", "trial_name", "backend", *plain}
    assert set(read) == expected | {key.split(".")[0] for key in settings(plan)}


def test_other_frameworks_are_marked_approximate() -> None:
    trl = render(PLAN, EVIDENCE, form="trl")
    assert "approximate" in trl.splitlines()[0]
    assert yaml.safe_load(trl)["max_length"] == 16384
    verl = render(PLAN, EVIDENCE, form="verl")
    assert "approximate" in verl.splitlines()[0]
    assert "ppo_max_token_len_per_gpu=16384" in verl and "ppo_mini_batch_size=16" in verl


def test_with_espalier_inside_the_export_stops_where_it_is_not() -> None:
    plan = replace(PLAN, step="areal-espalier", ppo_n_minibatches=1)
    text = render(plan, EVIDENCE)
    assert yaml.safe_load(text)["attn_impl"] == ATTENTION
    assert "run by: AReaL with Espalier" in text and 'ESPALIER_AREAL: "1"' in text
    assert check(text, version="1.0.4").errors == ()
    assert fill_plan(ArealConfig.read(text), TuningPlan())[0].step == "areal-espalier"
    assert "attn_impl" not in yaml.safe_load(render(plan, EVIDENCE, trees=False))
    plain = render(PLAN, EVIDENCE)
    assert "attn_impl" not in plain and "run by: AReaL as it is" in plain
    assert "step of AReaL as it is (measured)" in render(
        PLAN, replace(EVIDENCE, measured=timed(replace(PLAN, step="areal"), "H200"))
    )


def test_what_fits_with_espalier_alone_is_not_exported() -> None:
    plan = TuningPlan(
        device="h100-80", step="espalier", model="qwen3-0.6b", max_tokens_per_mb=131_072,
        gradient_checkpointing=True, dtype="bfloat16",
    )  # fmt: skip
    with pytest.raises(ExportError, match="dense mask and create_block_mask") as refusal:
        render(plan, Evidence())
    assert "areal-espalier" in str(refusal.value)
    for other in ({"max_tokens_per_mb": 8192}, {"packer": "prefix-aware"}):
        assert render(replace(plan, **other), Evidence())
    assert render(plan, Evidence(), trees=False)
