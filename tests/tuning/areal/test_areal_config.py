"""A user's config: read as AReaL reads it, turned into a plan, written back line by line."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.tuning.configs import BASE, ENGINE, config
from tuning.areal.backend import Backend, BackendError
from tuning.areal.config import UNKNOWN, ArealConfig, ConfigError
from tuning.areal.models import find_model, from_config
from tuning.export.tune import tune_config
from tuning.plan.from_config import fill_plan
from tuning.plan.plan import TuningPlan


def read(text: str) -> ArealConfig:
    return ArealConfig.read(text)


def test_values_are_resolved_converted_and_filled_with_areals_defaults() -> None:
    found = read(BASE + "tail: ${oc.env:HOME}\nwords: ${actor.path}/x\n")
    assert found.get("tokenizer_path") == "Qwen/Qwen3-1.7B"
    assert found.get("words") == "Qwen/Qwen3-1.7B/x"
    assert found.get("tail") is UNKNOWN
    assert found.actor("attn_impl") == "flash_attention_2"
    assert found.actor("archon.enable_compile") is False
    assert found.actor("archon.enable_compile", "1.0.3") is True
    assert (
        read("actor:\n  mb_spec: {max_tokens_per_mb: '8192'}").actor("mb_spec.max_tokens_per_mb")
        == 8192
    )
    assert (
        read("actor:\n  mb_spec: {max_tokens_per_mb: 8k}").actor("mb_spec.max_tokens_per_mb")
        is UNKNOWN
    )


@pytest.mark.parametrize("text", ["a: ${b}\nb: ${a}", "a: ${missing}", "a: x${f:1}"])
def test_what_only_the_run_knows_is_unknown(text: str) -> None:
    assert read(text).get("a") is UNKNOWN


@pytest.mark.parametrize(
    ("text", "trainer"),
    [
        (BASE, "ppo"),
        (ENGINE, "engine"),
        ("actor: {path: x}\ntrain_dataset: {type: sft}", "sft"),
        ("actor: {path: x, beta: 0.1}", "dpo"),
        ("actor: {path: x, is_critic: true}", "rw"),
        ("actor: {path: x}", "ppo"),
    ],
)
def test_the_trainer_is_told_from_the_file(text: str, trainer: str) -> None:
    assert read(text).trainer == trainer


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("fsdp:d8", Backend("fsdp", 8)),
        ("fsdp[actor]:d4p1t2", Backend("fsdp", 4, 2)),
        ("megatron:(attn:d4p4t2|ffn:d2p4e4)", Backend("megatron", 4, 2, 4, 1, 4)),
        ("archon: d2 c2", Backend("archon", 2, 1, 1, 2)),
    ],
)
def test_backends_parse(text: str, backend: Backend) -> None:
    assert Backend.parse(text) == backend


@pytest.mark.parametrize("text", ["d8", "sglang:d4", "fsdp:", "fsdp:x4", "fsdp:d0"])
def test_other_backends_are_refused(text: str) -> None:
    with pytest.raises(BackendError):
        Backend.parse(text)


def test_a_plan_is_filled_from_a_config() -> None:
    plan, notes = fill_plan(read(BASE), TuningPlan(max_tokens_per_mb=1024))
    assert notes == []
    assert plan == TuningPlan(
        prompts_per_step=32,
        samples_per_prompt=8,
        dp_size=4,
        max_tokens_per_mb=8192,
        model="Qwen/Qwen3-1.7B",
        dtype="bfloat16",
        gradient_checkpointing=True,
        max_new_tokens=1024,
    )


def test_parts_that_a_plan_does_not_cover_are_named() -> None:
    text = config(
        ('"fsdp:d4"', '"megatron:(attn:d2p2t2|ffn:d1p2e4)"'),
        ("my_own:", "econfig:"),
        ("Qwen/Qwen3-1.7B", "Qwen/Qwen2.5-VL-3B-Instruct"),
    )
    plan, notes = fill_plan(read(text), TuningPlan())
    assert (plan.engine, plan.dp_size, plan.tp_size) == ("megatron", 2, 2)
    assert plan.samples_per_prompt == 0
    joined = " ".join(notes)
    for words in ("one row or more", "Pipeline parallelism of 2", "takes images"):
        assert words in joined


def test_defaults_are_composed_by_hydra_itself(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("gconfig: {n_samples: 4}\nactor: {path: a, dtype: fp32}\n")
    (tmp_path / "actor").mkdir()
    (tmp_path / "actor" / "small.yaml").write_text("kl_ctl: 0.5\n")
    (tmp_path / "glob.yaml").write_text("# @package _global_\nseed: 7\n")
    file = tmp_path / "run.yaml"
    listed = "defaults:\n  - base\n  - /glob\n  - actor: small\n  - _self_\nactor: {path: b}\n"
    file.write_text(listed)
    found = ArealConfig.read(file)
    got = [found.get(p) for p in ("gconfig.n_samples", "actor.path", "actor.kl_ctl", "seed")]
    assert got == [4, "b", 0.5, 7] and found.refused == ""
    file.write_text(listed.replace("  - _self_\n", "").replace("  - base", "  - _self_\n  - base"))
    assert ArealConfig.read(file).get("actor.path") == "a"
    file.write_text("defaults:\n  - ../nowhere\n  - _self_\nactor: {path: b}\n")
    assert "MissingConfigException" in ArealConfig.read(file).refused
    of_text = ArealConfig.read(listed)
    assert of_text.get("actor.path") == "b" and "defaults" in of_text.notes[0]


def test_a_huge_file_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    file = tmp_path / "big.yaml"
    with file.open("wb") as out:
        out.truncate(50 * 2**20)
    with pytest.raises(ConfigError, match=r"50\.0 MiB"):
        ArealConfig.read(file)


def _changed_lines(before: str, after: str) -> list[str]:
    delta = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in delta if line[0] in "+-"]


def test_a_round_trip_changes_only_the_tuned_lines() -> None:
    before = read(config(("my_own:", "anchor: &a {x: 1}\nuser: *a\nmy_own:")))
    after = tune_config(before, TuningPlan(max_tokens_per_mb=4096, dp_size=4))
    assert _changed_lines(before.yaml.text, after.text) == [
        "-     max_tokens_per_mb: 8192   # by hand",
        "+     max_tokens_per_mb: 4096   # by hand",
    ]


def test_a_tuned_config_writes_nothing_again() -> None:
    plan = TuningPlan(max_tokens_per_mb=8192, dp_size=4)
    once = tune_config(read(BASE), plan)
    assert once.text == BASE
    assert read(BASE).diff(once.config) == ""


def test_the_engine_of_the_file_decides_what_trees_need() -> None:
    before = read(config(("fsdp:d4", "archon:d4"), ("batch_size: 32", "batch_size: 30")))
    tuned = tune_config(before, TuningPlan(max_tokens_per_mb=8192))
    assert tuned.config.get("actor.archon.enable_compile") is True
    assert tuned.config.get("train_dataset.batch_size") == 32
    assert len(tuned.before.errors) == 2 and not tuned.after.errors
    assert "the backend is left as it is" in tuned.notes[0]


def test_a_reference_pass_gets_the_same_tree_settings() -> None:
    text = config(("kl_ctl: 0.0", "kl_ctl: 0.1")) + "ref:\n  backend: ${actor.backend}\n"
    tuned = tune_config(read(text), TuningPlan(max_tokens_per_mb=8192, dp_size=4))
    for path, value in {
        "ref.enable_tree_training": True,
        "ref.pad_to_maximum": True,
        "ref.mb_spec.max_tokens_per_mb": 8192,
    }.items():
        assert tuned.config.get(path) == value


def test_a_files_minibatches_stay_unless_asked() -> None:
    before = read(config(("ppo_n_minibatches: 1", "ppo_n_minibatches: 4")))
    plan = TuningPlan(max_tokens_per_mb=8192, dp_size=4)
    kept = tune_config(before, plan)
    assert kept.config.get("actor.ppo_n_minibatches") == 4
    assert any("stays 4" in note and "optimizer steps" in note for note in kept.notes)
    asked = tune_config(before, plan, minibatches=True)
    assert asked.config.get("actor.ppo_n_minibatches") == 1


def test_a_config_without_a_gpu_is_not_tuned_to_flash_attention() -> None:
    cpu = config(
        ("enable_tree_training: true", "attn_impl: sdpa"),
        ("- task_type: worker", "- task_type: worker\n      gpu: 0"),
    )
    tuned = tune_config(read(cpu), TuningPlan(max_tokens_per_mb=8192, dp_size=4))
    assert tuned.config.get("actor.attn_impl") == "sdpa"
    assert tuned.config.get("actor.enable_tree_training") is False
    assert any("asks for no GPU" in note for note in tuned.notes)


def test_a_bound_above_the_cap_is_lowered_and_said() -> None:
    long = config(("  max_tokens: 4096\n", ""), ("  max_length: 1024\n", ""))
    tuned = tune_config(read(long), TuningPlan(max_tokens_per_mb=8192, dp_size=4))
    assert tuned.config.get("gconfig.max_tokens") == 8192
    assert any("gconfig.max_tokens goes from 32768 to 8192" in note for note in tuned.notes)


def test_a_trainer_that_trees_cannot_serve_is_left_alone() -> None:
    text = "actor: {path: x, beta: 0.1}\n"
    assert tune_config(read(text), TuningPlan()).text == text


def test_models_are_known_by_name_or_config_and_never_guessed(tmp_path: Path) -> None:
    known = find_model("Qwen/Qwen3-8B-Instruct")
    assert known is not None and (known.heads, known.family) == (32, "qwen3")
    moe = find_model("Qwen/Qwen3-30B-A3B")
    assert moe is not None and moe.experts
    for name in ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen3.5-4B", "google/gemma-3-4b-it"):
        found = find_model(name)
        assert found is not None and found.vision, name
    assert find_model("some/Model-8B") is None
    (tmp_path / "config.json").write_text(
        '{"model_type": "x", "num_attention_heads": 4, "hidden_size": 64, "kv_lora_rank": 8}'
    )
    local = find_model(str(tmp_path))
    assert local is not None and local.latent and local.head_dim == 16


def test_a_window_that_is_switched_off_does_not_slide() -> None:
    qwen2 = {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}
    assert not from_config(qwen2).sliding
    assert from_config({"model_type": "mistral", "sliding_window": 4096}).sliding
    kinds = ["full_attention", "sliding_attention"]
    assert from_config({"model_type": "y", "layer_types": kinds}).sliding
    assert from_config({"model_type": "z", "layer_types": ["linear_attention"]}).hybrid


@pytest.mark.parametrize(
    ("fields", "trait"),
    [
        ({"layers_block_type": ["mamba", "attention"]}, "hybrid"),
        ({"linear_num_key_heads": 4}, "hybrid"),
        ({"hybrid_override_pattern": "M-M*"}, "hybrid"),
        ({"full_attention_interval": 4}, "hybrid"),
        ({"ssm_state_size": 16}, "hybrid"),
        ({"layer_types": ["conv", "full_attention"]}, "hybrid"),
        ({"attention_chunk_size": 8192}, "sliding"),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "sliding"),
        ({"kv_lora_rank": 512}, "latent"),
        ({"vision_config": {}}, "vision"),
        ({"image_token_index": 7}, "vision"),
        ({"text_config": {"layer_types": ["linear_attention"]}, "vision_config": {}}, "hybrid"),
        ({"moe_num_experts": 8}, "experts"),
    ],
)
def test_a_family_never_heard_of_is_known_by_its_fields(fields: dict, trait: str) -> None:
    plain = from_config({"model_type": "nobodys", "num_attention_heads": 8, "hidden_size": 512})
    traits = ("vision", "hybrid", "sliding", "latent", "experts")
    assert not any(getattr(plain, one) for one in traits)
    assert getattr(from_config({"model_type": "nobodys", **fields}), trait)


def test_every_published_config_imports_and_fills_a_plan(shared_dir: Path) -> None:
    files = sorted((shared_dir / "data" / "areal_configs").glob("*.yaml"))
    assert len(files) >= 17
    for file in files:
        found = ArealConfig.read(file)
        plan, _ = fill_plan(found, TuningPlan())
        assert plan.prompts_per_step == found.get("train_dataset.batch_size"), file.name
        assert plan.max_tokens_per_mb == found.actor("mb_spec.max_tokens_per_mb"), file.name
        assert found.backend is not None and plan.dp_size == found.backend.data, file.name
        assert plan.model == found.actor("path"), file.name


@pytest.mark.parametrize("key", ["1", "a b", "class", "x.y", "ü"])
def test_a_key_of_ones_own_may_be_anything(key: str) -> None:
    parsed = read(f"{BASE}{key}: {{a: 1}}\n").parsed()
    assert parsed.refusals == () and len(parsed.own) == 2


@pytest.mark.parametrize(
    ("line", "path", "words"),
    [
        ("critic: ${nosuch}", "critic", "nosuch"),
        ("sglang: {nosuch: 1}", "sglang.nosuch", "SGLangConfig"),
        ("scheduler: {type: [1]}", "scheduler.type", "Cannot convert"),
        ("perf_tracer: {enabled: maybe}", "perf_tracer.enabled", "bool"),
    ],
)
def test_every_section_is_parsed_and_each_fault_has_its_place(
    line: str, path: str, words: str
) -> None:
    refusals = read(f"{BASE}{line}\n").parsed().refusals
    one = next(r for r in refusals if r.path == path)
    assert words in f"{one.says} {one.section}"
