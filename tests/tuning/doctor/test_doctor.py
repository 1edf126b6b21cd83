"""Each rule has a config that triggers it and a neighbour that does not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packing.rows import Rows
from scripts.doctor_examples import OUT, render
from tests.tuning.configs import BASE, ENGINE, config
from tests.tuning.doctor_cases import CAP, CASES, KL, MODEL, REF, TREE, Change, actor, backend
from tuning.areal.config import ArealConfig, ConfigError
from tuning.areal.schema import Version
from tuning.doctor.doctor import Finding, Report, check, describe
from tuning.doctor.rules import RULES, Case
from tuning.doctor.rules.memory import Server, need_of, server_of

TRIGGERED: set[str] = set()


@cache
def _report(text: str, version: Version, **given: Any) -> Report:
    """Kept: one test asks again for what the others have asked for."""
    return check(text, version=version, **given)


def found(text: str, rule: str, version: Version = "1.0.4", **given: Any) -> list[Finding]:
    asked = check if "rows" in given else _report
    report = asked(text, version=version, **given)
    hits = [one for one in report.findings if one.rule == rule]
    if hits:
        TRIGGERED.add(rule)
    return hits


def test_the_base_config_is_clean() -> None:
    report = check(BASE)
    assert report.findings == () and report.exit_code == 0 and report.tree_on
    assert check(ENGINE).findings == ()


def test_green_means_that_nothing_was_found_and_everything_looked_at() -> None:
    own = BASE[BASE.index("my_own:") :]
    whole = check(BASE.replace(own, ""))
    assert whole.green and whole.verdict.endswith("nothing that we know of stops the run.")
    assert any("Row bound: 2,048" in one for one in whole.checked)
    for text, words in (
        (BASE, "training script: my_own"),
        (ENGINE, "row bound"),
        (BASE.replace(own, "").replace("path: Qwen/Qwen3-1.7B", "path: some/Model"), "some/Model"),
        (BASE.replace(own, "").replace("path: data", "path: ${oc.env:DATA}"), "only the run knows"),
        ("actor:\n  mb_spec: {max_tokens_per_mb: 8192}\n", "part of a config"),
        ("resources: {accelerators: H100:8}\nrun: python train.py\n", "no key of this file"),
        ('rollout: {backend: "sglang:d4"}\n', "this file holds none"),
    ):
        report = check(text)
        assert report.exit_code == 0 and not report.green, text
        assert any(words in one for one in report.not_checked), report.not_checked
        assert "nothing that we know of" not in report.verdict


@pytest.mark.parametrize(
    ("rule", "words", "bad"),
    [(c[0], c[2], c[3]) for c in CASES],
    ids=[f"{c[0]}-{c[2][:24]}" for c in CASES],
)
def test_a_mend_that_is_a_setting_mends(rule: str, words: str, bad: list[Change]) -> None:
    before = check(config(*bad))
    one = next(o for o in before.findings if o.rule == rule)
    if one.fix:
        after = check(before.config.written(one.fix))
        assert not [o for o in after.findings if (o.rule, o.path) == (rule, one.path)]


@pytest.mark.parametrize(
    ("rule", "severity", "words", "bad", "good"), CASES, ids=[f"{c[0]}-{c[2][:24]}" for c in CASES]
)
def test_a_rule_finds_its_config_and_spares_its_neighbour(
    rule: str, severity: str, words: str, bad: list[Change], good: list[Change]
) -> None:
    hits = found(config(*bad), rule)
    one = next(hit for hit in hits if hit.severity == severity)
    assert words in f"{one.problem} {one.says} {one.mend}"
    assert one.when and one.mend and one.source
    assert not found(config(*good), rule)


def test_rules_that_depend_on_the_version() -> None:
    megatron = config(backend("megatron:d4"))
    assert found(megatron, "megatron-gradient-scale", "1.0.3")
    assert not found(megatron, "megatron-gradient-scale", "1.0.4")
    archon = config(backend("archon:d4"))
    assert not found(archon, "archon-compile", "1.0.3")
    assert found(BASE, "old-tree-key", "tree_training_mode")
    assert not found(BASE, "old-tree-key", "main")
    chunked = config(backend("megatron:d4"), actor("megatron: {enable_chunked_logits: true}"))
    assert found(chunked, "megatron-chunked-head", "main")
    assert not found(chunked, "megatron-chunked-head", "1.0.4")
    assert found(chunked, "unknown-key", "1.0.4")
    forced = config(
        actor("prox_logp_method: reuse_train_logp"),
        ("ppo_n_minibatches: 1", "ppo_n_minibatches: 4"),
    )
    assert found(forced, "forced-minibatch", "main")
    assert not found(forced, "minibatches-scatter", "main")
    kk = config((CAP, f"{CAP}\n    packing_algorithm: kk"))
    assert found(kk, "unknown-key", "1.0.3") and not found(kk, "unknown-key", "1.0.4")


def test_what_hydra_cannot_compose_or_find(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"defaults: [nowhere, _self_]\n{BASE}")
    hits = [one for one in check(file).findings if one.rule == "hydra-compose"]
    assert "Could not load" in hits[0].says or "Missing" in hits[0].says
    other = tmp_path / "run.yml"
    other.write_text(BASE)
    hits = [one for one in check(other).findings if one.rule == "hydra-compose"]
    assert "Call it run.yaml." in hits[0].mend
    TRIGGERED.add("hydra-compose")
    file.write_text(BASE)
    assert not [one for one in check(file).findings if one.rule == "hydra-compose"]


def test_trainers_without_trees() -> None:
    sft = "actor:\n  backend: fsdp:d1\n  path: x\n  enable_tree_training: true\n"
    sft += "  pad_to_maximum: true\n  mb_spec: {max_tokens_per_mb: 1024}\n"
    for kind in ("sft", "dpo"):
        hits = found(f"{sft}train_dataset: {{type: {kind}, path: p}}\n", "trainer")
        assert hits[0].says == "KeyError: 'cu_seqlens'"
        assert "rollout" not in hits[0].when
    assert not found(BASE, "trainer")


def test_archon_pads_by_itself_and_stops_for_a_critic_at_the_start() -> None:
    archon = config(
        backend("archon:d4"),
        actor("is_critic: true\n  archon: {enable_compile: true}"),
        ("pad_to_maximum: true", "pad_to_maximum: false"),
    )
    assert found(archon, "pad-to-maximum")[0].severity == "no effect"
    assert found(archon, "critic")[0].severity == "fails at start"


def _rows(groups: int, samples: int, prompt: int, tail: int) -> Rows:
    rng = np.random.default_rng(0)
    lists, ids = [], []
    for group in range(groups):
        start = rng.integers(0, 1000, prompt).tolist()
        for _ in range(samples):
            lists.append(start + rng.integers(0, 1000, tail).tolist())
            ids.append(group)
    return Rows.from_lists(lists, ids)


def test_rules_on_rows() -> None:
    rows = _rows(32, 8, 900, 60)
    assert found(config((CAP, "max_tokens_per_mb: 896")), "row-too-long", rows=rows)
    assert not found(BASE, "row-too-long", rows=rows)
    two = config(("ppo_n_minibatches: 1", "ppo_n_minibatches: 2"))
    scattered = found(two, "scatter-cost", rows=rows)
    assert "tree_token_ratio is" in scattered[0].problem and "×" in scattered[0].problem
    assert not found(BASE, "scatter-cost", rows=rows)
    assert not found(two, "minibatches-scatter", rows=rows)
    many = config(("ppo_n_minibatches: 1", "ppo_n_minibatches: 100"))
    assert found(many, "minibatch-too-small", rows=rows)[0].says.endswith("min_groups 100")
    assert not found(two, "minibatch-too-small", rows=rows)
    assert found(BASE, "trees-lose", rows=_rows(32, 1, 4, 60))
    assert not found(BASE, "trees-lose", rows=rows)
    assert found(BASE, "rows-do-not-reach", rows=_rows(8, 8, 900, 60))
    assert not found(BASE, "rows-do-not-reach", rows=rows)
    assert found(ENGINE, "prompts-divide", rows=_rows(6, 2, 9, 9))
    assert not found(ENGINE, "prompts-divide", rows=_rows(8, 2, 9, 9))


def test_the_scatter_cost_is_that_of_the_simulated_batch() -> None:
    from packing.batch.pipeline import simulate
    from packing.batch.spec import BatchSpec

    rows = _rows(32, 8, 300, 300)
    two = config(("ppo_n_minibatches: 1", "ppo_n_minibatches: 2"))
    problem = found(two, "scatter-cost", rows=rows)[0].problem
    paid = [
        simulate(rows, BatchSpec(8192, dp_size=4, ppo_n_minibatches=n)).comparison.tree
        for n in (1, 2)
    ]
    assert f"{paid[1] / paid[0]:.2f}×" in problem


def test_dummy_trees_many_nodes_and_deep_nesting() -> None:
    uneven = Rows.from_lists(
        [[group] * 900 + [group, n] * 40 for group in range(3) for n in range(4)] + [[9, 9]],
        [group for group in range(3) for _ in range(4)] + [3],
    )
    small = config(
        (CAP, "max_tokens_per_mb: 1024"),
        ("batch_size: 32", "batch_size: 4"),
        ("max_tokens: 4096", "max_tokens: 1024"),
    )
    dp2 = small.replace("fsdp:d4", "fsdp:d2")
    assert found(dp2, "dummy-trees", rows=uneven)
    assert not found(small.replace("fsdp:d4", "fsdp:d1"), "dummy-trees", rows=uneven)
    bushy = Rows.from_lists([[7, n, n, n] for n in range(200)], [0] * 200)
    assert found(ENGINE.replace("fsdp:d4", "fsdp:d1"), "many-nodes", rows=bushy)
    nested = Rows.from_lists([list(range(1, n + 1)) for n in range(1, 1200)], [0] * 1199)
    deep = ENGINE.replace("fsdp:d4", "fsdp:d1")
    assert "RecursionError" in found(deep, "nested-too-deep", rows=nested)[0].says
    assert not found(deep, "nested-too-deep", rows=bushy)
    short = Rows.from_lists([[7, n] for n in range(20)], [0] * 20)
    assert not found(deep, "many-nodes", rows=short)


ADAM = ("pad_to_maximum: true", "pad_to_maximum: true\n  optimizer: {type: adam}")
FOUR_GPUS = (
    "my_own:",
    "cluster: {n_nodes: 1, n_gpus_per_node: 4}\nscheduler: {type: local}\nmy_own:",
)
JOINED = (
    TREE,
    f"{TREE}\n  scheduling_strategy: {{type: colocation, target: rollout}}\n"
    "  weight_update_mode: disk",
)
VLLM = ('"sglang:d4"', '"vllm:d4"')


def _ref_on_the_actors_gpus(text: str) -> str:
    ref, own = "ref:\n", "  scheduling_strategy: {type: colocation, target: actor}\n"
    return text.replace(REF[0], REF[1].replace(ref, ref + own)).replace(KL, "kl_ctl: 0.1")


def test_memory_is_a_lower_bound_with_its_parts() -> None:
    problem = found(BASE, "memory", memory_budget_gib=1.0)[0].problem
    for part in ("masks", "logits", "weights", "activations not counted"):
        assert part in problem
    assert not found(BASE, "memory", memory_budget_gib=80.0)
    # the share of a server on the same GPU, and what it leaves for a tree
    crowded = config(ADAM, FOUR_GPUS, VLLM)
    left = found(crowded, "server-memory", memory_budget_gib=80.0)[0]
    assert left.severity == "fails at first batch" and "actor runs on the same GPU" in left.problem
    roomy = crowded.replace("my_own:", "vllm: {gpu_memory_utilization: 0.5}\nmy_own:")
    assert not found(roomy, "server-memory", memory_budget_gib=80.0)
    assert not found(config(ADAM, VLLM), "server-memory", memory_budget_gib=80.0)
    start = found(crowded, "server-memory", memory_budget_gib=40.0)[0]
    assert start.severity == "fails at start" and "Free memory on device" in start.says
    heavy = config(("Qwen/Qwen3-1.7B", "Qwen/Qwen3-32B"))
    assert "mem-fraction-static" in found(heavy, "server-memory", memory_budget_gib=48.0)[0].says


@pytest.mark.parametrize(
    ("changes", "version", "bytes_each"),
    [
        ([ADAM], "1.0.4", 16 / 4),  # float32 weight, gradient and two moments over four ranks
        ([ADAM], "1.0.3", 8 / 4),  # no optimizer_dtype yet: all in bfloat16
        ([ADAM, (TREE, f"{TREE}\n  optimizer_dtype: bfloat16")], "main", 8 / 4),
        ([ADAM, (TREE, f"{TREE}\n  fsdp: {{offload_params: true}}")], "main", 0),
        ([ADAM, (TREE, f"{TREE}\n  fsdp: {{per_layer_optim_step: true}}")], "main", 8 / 4),
        ([ADAM, (TREE, f"{TREE}\n  use_lora: true")], "main", 4 / 4),
        ([(ADAM[0], ADAM[1].replace("adam", "adam_bf16"))], "main", (8 + 6) / 4),
        ([(ADAM[0], ADAM[1].replace("adam", "sgd"))], "main", 8 / 4),
        ([ADAM, backend("archon:d4")], "main", 8 / 4),
        ([ADAM, backend("megatron:d4")], "main", 2 + 4 + 12 / 4),
        ([(ADAM[0], ADAM[1].replace("adam", "adam_bf16")), backend("megatron:d4")], "main", 8),
    ],
)
def test_what_an_engine_keeps_follows_its_optimizer(
    changes: list[Change], version: Version, bytes_each: float
) -> None:
    gib = 1_721_000_000 * bytes_each / 2**30
    need = need_of(Case(ArealConfig.read(config(*changes)), version))
    assert need.parts.get("weights, gradients, optimizer", 0) == pytest.approx(gib)


def test_engines_on_one_gpu_are_added_and_what_is_offloaded_is_not() -> None:
    offload = config(ADAM, JOINED, ("my_own:", "enable_offload: true\nmy_own:"))
    case = Case(ArealConfig.read(_ref_on_the_actors_gpus(offload)), memory_budget_gib=24.0)
    assert "ref beside it" in need_of(case).parts  # the actor pays for a ref that stays
    assert "actor beside it" not in need_of(case.of("ref")).parts  # and leaves while ref runs
    server = server_of(case)
    assert isinstance(server, Server) and 0 < server.beside < 2 and not server.stays
    apart = Case(ArealConfig.read(config(ADAM, REF, (KL, "kl_ctl: 0.1"))), memory_budget_gib=24.0)
    assert "ref beside it" not in need_of(apart).parts


def test_memory_that_cannot_be_known_is_not_checked() -> None:
    text = config(ADAM, ("Qwen/Qwen3-1.7B", "who/knows"))
    assert any("memory of actor" in one for one in check(text, memory_budget_gib=80.0).open_points)
    assert not any("memory" in one for one in check(text).open_points)
    own = config(ADAM, ("my_own:", "sglang: {mem_fraction_static: null}\nmy_own:"))
    report = check(own, memory_budget_gib=80.0)
    assert "memory of the rollout's server: sglang.mem_fraction_static is left to the server" in (
        report.open_points
    )


def test_every_rule_is_triggered_by_some_test(tmp_path: Path) -> None:
    for rule, _, _, bad, _ in CASES:
        found(config(*bad), rule)
    for test in (
        test_rules_that_depend_on_the_version,
        test_trainers_without_trees,
        test_rules_on_rows,
        test_dummy_trees_many_nodes_and_deep_nesting,
        test_memory_is_a_lower_bound_with_its_parts,
    ):
        test()
    test_what_hydra_cannot_compose_or_find(tmp_path)
    assert {rule.id for rule in RULES} == TRIGGERED


def test_ids_are_unique() -> None:
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids))


def test_a_config_with_trees_off_gets_both_verdicts() -> None:
    off = config((f"  {TREE}\n", ""), ("pad_to_maximum: true", "pad_to_maximum: false"))
    report = check(off)
    assert not report.tree_on and report.findings == () and report.exit_code == 0
    assert [one.rule for one in report.if_turned_on] == ["pad-to-maximum"]
    assert report.verdict_if_on == "Turned on, it needs 1 change first."
    assert report.mends == {"actor.pad_to_maximum": True}
    assert "Turned on" in describe(report)


def test_the_report_is_plain_json_and_names_what_was_not_checked() -> None:
    report = check(config((MODEL, "path: some/Model")))
    plain = json.loads(json.dumps(report.to_json()))
    assert plain["exit_code"] == 0
    assert any("some/Model" in note for note in plain["not_checked"])


def test_the_published_tau2_8b_config_has_its_two_errors(shared_dir: Path) -> None:
    report = check(shared_dir / "data" / "areal_configs" / "tau2_config_8b_airline.yaml")
    assert {one.rule for one in report.errors} == {"archon-compile", "batch-divides"}
    assert any("128 GiB" in one.problem for one in report.errors)
    assert report.exit_code == 1


VERDICTS = {
    # file: errors as it stands, errors if trees were on
    "alignment_hhrlhf_dpo": (set(), {"trainer", "pad-to-maximum"}),
    "math_boba_grpo": (set(), {"pad-to-maximum"}),
    "math_gsm8k_dapo_dynamic_bs": (set(), {"pad-to-maximum"}),
    "math_gsm8k_grpo": (set(), {"pad-to-maximum"}),
    "math_gsm8k_grpo_lora": (set(), {"pad-to-maximum"}),
    "math_gsm8k_grpo_megatron": (set(), {"pad-to-maximum"}),
    "math_gsm8k_grpo_megatron_lora": (set(), {"megatron-lora", "pad-to-maximum"}),
    "math_gsm8k_gspo": (set(), {"sequence-level", "pad-to-maximum"}),
    "math_gsm8k_sft": (set(), {"trainer", "pad-to-maximum"}),
    "math_gsm8k_sft_archon_fp8": (set(), {"trainer", "archon-compile"}),
    "multi_turn_math_gsm8k_grpo_mt": (
        {"cap-below-generation"},
        {"cap-below-generation", "pad-to-maximum"},
    ),
    "search_agent_local_1.5b_example": (
        {"missing-value", "cap-below-generation"},
        {"missing-value", "cap-alignment", "cap-below-generation", "pad-to-maximum"},
    ),
    "skypilot_gsm8k_grpo_ray": (set(), {"pad-to-maximum"}),
    "tau2_config_1.7b_airline": ({"archon-compile"}, {"archon-compile"}),
    "tau2_config_30b_moe_airline": (set(), set()),
    "tau2_config_8b_airline": (
        {"archon-compile", "batch-divides"},
        {"archon-compile", "batch-divides"},
    ),
    "vlm_geometry3k_grpo": (
        {"cap-below-generation"},
        {"vision-model", "cap-below-generation", "pad-to-maximum"},
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts_on_published_configs_read_by_hand(shared_dir: Path, name: str) -> None:
    report = check(shared_dir / "data" / "areal_configs" / f"{name}.yaml")
    stands, turned_on = VERDICTS[name]
    assert {one.rule for one in report.errors} == stands
    assert {one.rule for one in report.if_turned_on if one.is_error} == turned_on


def test_the_documented_examples_are_what_the_doctor_says(shared_dir: Path) -> None:
    assert OUT.read_text() == render(shared_dir / "data" / "areal_configs")


@pytest.mark.parametrize(
    ("old", "new", "rule", "words"),
    [
        ("8192 ", f"{'9' * 400} ", "cap-unset", "bits"),
        ("8192 ", ".nan ", "wrong-type", "max_tokens_per_mb"),
        ("fsdp:d4", f"fsdp:d{'4' * 30}", "batch-divides", "do not divide"),
        ("fsdp:d4", f"fsdp:d{'4' * 5000}", "backend", "no sizes"),
        ("n_samples: 8", "n_samples: 8\n  a.b: 1", "unknown-key", "gconfig.a.b is no setting"),
        ("      env_vars:\n        NCCL_DEBUG: WARN", "      env_vars: [a]", "wrong-type", "spec"),
        ("actor:\n", "actor: hello\nacto:\n", "wrong-type", "actor is 'hello'"),
        ("n_samples: 8", "n_samples: ${gconfig.n_samples}", "interpolation", "n_samples"),
        ("actor:\n", "ref: ${ref}\nactor:\n", "interpolation", "ref"),
        ("path: data", "path: ${hydra:job.name}", "interpolation", "train_dataset.path"),
    ],
)
def test_an_odd_value_is_told_at_its_place_and_nothing_else(
    old: str, new: str, rule: str, words: str
) -> None:
    report = check(config((old, new)), memory_budget_gib=80.0, version="main")
    named = [one for one in report.errors if one.rule == rule and words in one.problem]
    assert named and not report.green
    other = {one.path for one in report.errors} - {named[0].path}
    assert not any(path.startswith(("saver", "recover", "stats_logger")) for path in other)


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"# nothing\n",
        b"null\n",
        b"\xff\xfea",
        bytes(range(256)),
        b"actor: &a\n  x: *a\n",
        f"d: {'{a: ' * 90}1{'}' * 90}\n".encode(),
        f"d: {'[' * 500}\n".encode(),
        f"a: {'${a}' * 5000}\n".encode(),
        b'a: "' + b"${oc.select:" * 300 + b"a" + b"}" * 300 + b'"\n',
        "".join(f"k{n}: 1\n" for n in range(9000)).encode(),
        b"x: !!python/object/apply:os.system [ls]\n",
        b"x: !!set {a, b}\n",
        b"null: 1\n",
        b"? [a, b]\n: 1\n",
    ],
)
def test_what_is_no_config_is_one_sentence(odd: bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        check(ArealConfig.read(odd))
    assert len(str(caught.value)) < 300 and "Traceback" not in str(caught.value)
