"""AReaL's own engine with the plugin against its own flat path: the same model comes out."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.areal.worker import Refused, Worker

pytestmark = [pytest.mark.deep, pytest.mark.process, pytest.mark.timeout(1200)]

CAP = 256
Groups = list[dict[str, Any]]


class Engines:
    """AReaL as it is, and with the plugin: two processes, one folder for what comes out."""

    def __init__(self, start: Callable[..., Worker], folder: Path) -> None:
        self.areal = start("tests.areal.engine", ESPALIER_AREAL="0")
        self.espalier = start("tests.areal.engine", ESPALIER_AREAL="1")
        self.folder = folder

    def step(self, worker: Worker, groups: Groups, **fields: Any) -> dict[str, Any]:
        """Log-probabilities per group, gradients, weights and statistics of one step."""
        out = self.folder / "step.pt"
        worker.ask(path=str(self.folder / "model"), groups=groups, out=str(out), **fields)
        seen: dict[str, Any] = torch.load(out)
        return seen

    def flat(self, groups: Groups, **fields: Any) -> dict[str, Any]:
        return self.step(self.areal, groups, tree=False, **fields)

    def trees(self, groups: Groups, **fields: Any) -> dict[str, Any]:
        return self.step(self.espalier, groups, tree=True, **{"cap": CAP} | fields)


@pytest.fixture(scope="module")
def engines(start: Callable[..., Worker], tmp_path_factory: pytest.TempPathFactory) -> Engines:
    return Engines(start, tmp_path_factory.mktemp("areal"))


def tokens(rng: random.Random, n: int) -> list[int]:
    return [rng.randrange(8192) for _ in range(n)]


def prompt_groups() -> Groups:
    """Three prompts, four answers each."""
    rng, groups = random.Random(1), []
    for _ in range(3):
        prompt = tokens(rng, rng.randrange(10, 60))
        rows = [prompt + tokens(rng, rng.randrange(2, 40)) for _ in range(4)]
        groups.append({"rows": rows, "prompts": [len(prompt)] * 4})
    return groups


def turns() -> Groups:
    """Every call of an agent is a row: its prompt is a row before it, and what a tool said."""
    rng, groups = random.Random(2), []
    for _ in range(3):
        state, rows, prompts = tokens(rng, 30), [], []
        for _ in range(4):
            said = tokens(rng, 10)
            rows.append(state + said)
            prompts.append(len(state))
            state = rows[-1] + tokens(rng, 7)
        groups.append({"rows": rows, "prompts": prompts})
    return groups


def copies() -> Groups:
    """Copies, prefixes of rows, a stranger, a row of two tokens."""
    rng = random.Random(3)
    a = tokens(rng, 60)
    rows = [a + tokens(rng, 9), a, a + tokens(rng, 5), tokens(rng, 40), a, a[:9], tokens(rng, 2)]
    return [{"rows": [*rows, rows[0]], "prompts": [1] * 8}]


KINDS = {"groups": prompt_groups, "turns": turns, "copies": copies}


def scored(seen: dict[str, Any], groups: Groups) -> torch.Tensor:
    """Every log-probability of a token that is there."""
    return torch.cat(
        [
            logp[i, : len(row) - 1].float()
            for group, logp in zip(groups, seen["logps"], strict=True)
            for i, row in enumerate(group["rows"])
        ]
    )


def relative(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The worst distance of a parameter, by its norm."""
    assert one.keys() == other.keys() and one
    return max(
        float((one[n].float() - other[n].float()).norm() / other[n].float().norm().clamp_min(1e-12))
        for n in one
    )


def per_micro_batch(name: str) -> bool:
    """AReaL averages these over micro-batches, of which flat and trees have different numbers."""
    parts = ("num_micro_batches", "__count", "n_valid_generated_tokens", "tree_token_ratio")
    return any(part in name for part in parts)


def assert_same(trees: dict[str, Any], flat: dict[str, Any], groups: Groups) -> None:
    assert (scored(trees, groups) - scored(flat, groups)).abs().max() < 5e-5
    assert relative(trees["gradients"], flat["gradients"]) < 2e-5
    moved = {n: w for n, w in flat["weights"].items() if n in flat["gradients"]}
    assert relative({n: trees["weights"][n] for n in moved}, moved) < 2e-5
    for name, value in flat["stats"].items():
        if not per_micro_batch(name):
            assert trees["stats"][name] == pytest.approx(value, rel=2e-4, abs=2e-4), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_that_of_the_flat_path(engines: Engines, kind: str) -> None:
    groups = KINDS[kind]()
    flat, trees = engines.flat(groups), engines.trees(groups)
    assert_same(trees, flat, groups)
    assert trees["stats"]["ppo_actor/update/tree_token_ratio"] < 0.9


@pytest.mark.parametrize(
    "fields",
    [
        {"gradient_checkpointing": True},
        {"temperature": 0.7},
        {"use_lora": True, "lora_rank": 4},
        {"prox_logp_method": "loglinear"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_also_with(engines: Engines, fields: dict[str, Any]) -> None:
    groups = turns()
    assert_same(engines.trees(groups, **fields), engines.flat(groups, **fields), groups)


@pytest.mark.parametrize(
    "environment",
    [
        {"ESPALIER_AREAL_HEAD": "logits"},
        {"ESPALIER_AREAL_PACKER": "prefix-aware", "ESPALIER_AREAL_HEAD": "fused"},
    ],
    ids=lambda environment: "-".join(environment.values()),
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_head_and_the_packer_change_nothing(
    engines: Engines, environment: dict[str, str], kind: str
) -> None:
    groups = KINDS[kind]()
    default = {"ESPALIER_AREAL_HEAD": "fused", "ESPALIER_AREAL_PACKER": "areal"}
    try:
        trees = engines.trees(groups, temperature=1.3, environment=environment)
    finally:
        engines.trees(groups, environment=default)
    assert_same(trees, engines.flat(groups, temperature=1.3), groups)


def test_bf16_is_as_far_from_fp32_as_the_flat_path_is(engines: Engines) -> None:
    groups = turns()
    wide = engines.flat(groups)
    flat, trees = (run(groups, dtype="bfloat16") for run in (engines.flat, engines.trees))
    off = [(scored(x, groups) - scored(wide, groups)).abs().mean() for x in (trees, flat)]
    assert off[0] < 1.3 * off[1] + 1e-6
    wrong = [relative(x["gradients"], wide["gradients"]) for x in (trees, flat)]
    assert wrong[0] < 1.3 * wrong[1]


def test_left_padding_packs_the_right_tokens(engines: Engines) -> None:
    """AReaL's advantages take the padding to be on the right, so this is about what was packed."""
    groups = prompt_groups()
    right = engines.trees(groups)
    left = engines.trees([group | {"left": True} for group in groups])
    assert torch.equal(scored(left, groups), scored(right, groups))


def test_an_engine_without_trees_beside_it_is_left_alone(engines: Engines) -> None:
    groups = prompt_groups()
    for _ in range(2):  # in turns; the weights move, in both
        flat = engines.step(engines.espalier, groups, tree=False, keep="flat")
        trees = engines.trees(groups, keep="trees")
        assert_same(trees, flat, groups)
    assert_same(
        flat, engines.flat(groups, keep="again") and engines.flat(groups, keep="again"), groups
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"cap": None},
        {"cap": -128},
        {"cap": 300},
        {"pad_to_maximum": False},
        {"cap": 128},
        {"is_critic": True},
        {"backend": "fsdp:d1c1t1", "attn_impl": "flash_attention_9"},
    ],
    ids=str,
)
def test_errors_are_areals(engines: Engines, fields: dict[str, Any]) -> None:
    groups = [{"rows": [tokens(random.Random(5), 200)], "prompts": [3]}]
    words = []
    for worker in (engines.areal, engines.espalier):
        with pytest.raises(Refused) as refusal:
            engines.step(worker, groups, tree=True, **{"cap": CAP} | fields)
        words.append(refusal.value.args)
    mine, theirs = words[1][1].replace(", 'espalier_tree'", ""), words[0][1]
    assert mine == theirs


def test_the_config_that_names_the_plugin_stops_where_it_is_not(engines: Engines) -> None:
    groups = turns()
    fields: dict[str, Any] = {"tree": True, "cap": CAP, "attn_impl": "espalier_tree"}
    with pytest.raises(Refused, match=r"attn_impl must be one of .* got 'espalier_tree'"):
        engines.step(engines.areal, groups, **fields)
    named = engines.step(engines.espalier, groups, **fields)
    assert relative(named["gradients"], engines.trees(groups)["gradients"]) < 1e-6


def test_minibatches_of_whole_groups(engines: Engines, start: Callable[..., Worker]) -> None:
    """Asked for, siblings share a minibatch, with trees and without; AReaL scatters them."""
    rng, groups = random.Random(8), []
    for _ in range(6):  # any two rows exceed the longest: flat micro-batches hold one
        prompt = tokens(rng, 40)
        rows = [prompt + tokens(rng, rng.randrange(15, 50)) for _ in range(4)]
        groups.append({"rows": rows, "prompts": [40] * 4})
    fields: dict[str, Any] = {"ppo_n_minibatches": 3}
    worker = start("tests.areal.engine", ESPALIER_AREAL="1", ESPALIER_AREAL_MINIBATCHES="groups")
    trees = engines.step(worker, groups, tree=True, cap=CAP, **fields)
    flat = engines.step(worker, groups, tree=False, n_mbs=1, **fields)
    assert relative(trees["weights"], flat["weights"]) < 2e-5
    ratio = "ppo_actor/update/tree_token_ratio"
    scattered = engines.trees(groups, **fields)
    assert trees["stats"][ratio] < scattered["stats"][ratio] - 0.1
    assert relative(trees["weights"], scattered["weights"]) > 1e-4


def test_two_workers_of_areals_controller_stay_in_step(engines: Engines) -> None:
    """One rank has one tree, the other three: two of its trees are dummies."""
    rng = random.Random(7)
    shared = tokens(rng, 60)
    one = {"rows": [shared + tokens(rng, 40) for _ in range(4)], "prompts": [60] * 4}
    alone = [{"rows": [tokens(rng, 120)], "prompts": [20]} for _ in range(3)]
    groups = [one, *alone]
    many = engines.trees(groups, cap=128, backend="fsdp:d2", in_workers=True)
    flat = engines.flat(groups, keep="alone")
    flat["logps"] += engines.flat(groups, keep="alone")["logps"]
    assert_same_outside(many, flat, groups)


def test_tensor_parallel_workers(engines: Engines) -> None:
    """Against AReaL's own tensor parallel step, which is not quite its step on one rank."""
    groups = turns()
    fields: dict[str, Any] = {"backend": "fsdp:d1t2", "in_workers": True}
    assert_same_outside(engines.trees(groups, **fields), engines.flat(groups, **fields), groups)


def assert_same_outside(many: dict[str, Any], flat: dict[str, Any], groups: Groups) -> None:
    """Log-probabilities before and after the step, and its statistics; weights are elsewhere."""
    n = len(groups)
    for when in (slice(0, n), slice(n, None)):
        logps = [{"logps": seen["logps"][when]} for seen in (many, flat)]
        off = scored(logps[0], groups) - scored(logps[1], groups)
        assert off.abs().max() < 5e-5
    for name in ("grad_norm", "actor_loss/avg", "entropy/avg"):
        name = f"ppo_actor/update/{name}"
        assert many["stats"][name] == pytest.approx(flat["stats"][name], rel=1e-4), name
