"""Runs of the kernels: right is found right, wrong is found wrong, what cannot run says why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from kernels.attention import BACKENDS, TreeMask
from kernels.attention.reference import dense_attention_with_lse
from packing.rows import Rows
from tests.kernels import forests
from tests.kernels.layouts import awkward_rows
from tuning.jobs.store import Store
from tuning.jobs.task import Task
from tuning.measure.proofs import flat as kernel_flat
from tuning.measure.proofs import kernels as kernel_runs
from tuning.measure.proofs import reference as kernel_reference
from tuning.measure.proofs.flat import FlatAttention
from tuning.measure.proofs.interpreter import MOST_TOKENS, interpret, small_tree
from tuning.measure.proofs.problem import KernelProblem, usable_device
from tuning.measure.proofs.reference import Reference
from tuning.plan.gpus import peak_tflops
from tuning.plan.plan import TuningPlan

PLAN = TuningPlan(max_tokens_per_mb=128)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """``run(plan, rows, **arguments)``: the message and the events, by type."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(plan: TuningPlan, rows: Rows, **arguments: Any) -> tuple[str, list[dict[str, Any]]]:
        task = Task("job", plan, rows, arguments, Store(tmp_path / "history.sqlite"))
        message = kernel_runs.run(task)
        return message, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def newest_rows(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {event["backend"]: event for event in events if event["type"] == "row"}


def test_every_backend_is_checked_and_timed_or_says_why_not(run: Any) -> None:
    message, events = run(PLAN, awkward_rows(), repeats=2, backends=["cascade", "flex", "dense"])
    rows = newest_rows(events)
    (problem,) = [e for e in events if e["type"] == "problem"]
    assert set(rows) == {"cascade", "flex", "dense", "rows"}
    for name in ("cascade", "dense"):
        row = rows[name]
        assert row["right"] and set(row["errors"]) == {"out", "dq", "dk", "dv"}
        assert 0 < max(row["errors"].values()) < 1e-5
        assert row["forward"]["n"] == row["backward"]["n"] == 2
        assert row["forward"]["p20_ms"] <= row["forward"]["median_ms"] <= row["forward"]["p80_ms"]
    n = problem["tokens"]
    assert rows["dense"]["visited_area"] == n * n
    assert problem["mask_area"] <= rows["cascade"]["visited_area"] <= n * n
    assert (problem["query_heads"], problem["key_heads"], problem["head_dim"]) == (2, 1, 64)
    assert problem["reference"] == f"a float64 reference over all {n} tokens"
    assert message.startswith("all are right; ") and events[-1]["wrong"] == []


def test_speed_counts_four_products_a_pair_and_head_dim(run: Any) -> None:
    _, events = run(PLAN, awkward_rows(), repeats=1, backends=["dense"])
    dense = newest_rows(events)["dense"]
    flops = 4 * dense["mask_area"] * 2 * 64
    for phase, factor in (("forward", 1), ("backward", 2.5)):
        seconds = dense[phase]["median_ms"] / 1e3
        assert dense[phase]["tflops"] == pytest.approx(factor * flops / seconds / 1e12)
        assert dense[phase]["peak_share"] is None


def test_flex_runs_forward_only_on_a_cpu(run: Any) -> None:
    _, events = run(PLAN, awkward_rows(), repeats=1, backends=["flex"])
    flex = newest_rows(events)["flex"]
    assert set(flex["errors"]) == {"out"} and flex["right"]
    assert "no backward" in flex["backward_reason"]
    assert "forward" in flex and "backward" not in flex
    assert events[-1]["fastest"] is None


def test_triton_is_proven_in_the_interpreter_and_shows_no_time(run: Any) -> None:
    pytest.importorskip("triton")
    _, events = run(PLAN, awkward_rows(), repeats=1, backends=["triton"])
    triton = newest_rows(events)["triton"]
    assert "need an NVIDIA GPU" in triton["reason"]
    assert triton["right"] and set(triton["errors"]) == {"out", "dq", "dk", "dv"}
    assert triton["interpreter"]["tokens"] <= MOST_TOKENS
    assert "forward" not in triton and "memory_bytes" not in triton


def test_the_rows_one_by_one_are_timed_beside_them(run: Any) -> None:
    rows = awkward_rows()
    _, events = run(PLAN, rows, repeats=1, backends=["cascade"])
    flat = newest_rows(events)["rows"]
    assert flat["mask_area"] == int((rows.lengths * (rows.lengths + 1) // 2).sum())
    assert flat["forward"]["n"] == 1 and "errors" not in flat and "scaled" not in flat


def _blind_to_the_last_key(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: TreeMask, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    blind = v.clone().index_fill(2, torch.tensor([mask.n - 1]), 0)
    return dense_attention_with_lse(q, k, blind, mask, scale)


def _never_a_number(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: TreeMask, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = dense_attention_with_lse(q, k, v, mask, scale)
    return out * float("nan"), lse


@pytest.mark.parametrize("fault", [_blind_to_the_last_key, _never_a_number])
def test_a_wrong_backend_is_called_wrong(
    run: Any, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    broken = replace(BACKENDS["cascade"], forward=fault)
    monkeypatch.setitem(BACKENDS, "cascade", broken)
    message, events = run(PLAN, awkward_rows(), repeats=1, backends=["cascade", "dense"])
    rows = newest_rows(events)
    assert (rows["cascade"]["right"], rows["dense"]["right"]) == (False, True)
    assert message == "errors beyond rounding: cascade" and events[-1]["wrong"] == ["cascade"]


def test_a_backend_that_fails_keeps_the_others(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        raise RuntimeError("out of something\nand a long trace")

    monkeypatch.setitem(BACKENDS, "cascade", replace(BACKENDS["cascade"], forward=fail))
    _, events = run(PLAN, awkward_rows(), repeats=1, backends=["cascade", "dense"])
    assert newest_rows(events)["cascade"]["reason"] == "it failed: out of something"
    assert events[-1]["fastest"] == "dense"


@pytest.mark.parametrize(
    ("limit", "value", "sentence"),
    [
        ("_DENSE_COPIES", 2**40, "N x N scores would take about"),
        ("_DENSE_SCORES", 10, "would take minutes on a CPU"),
    ],
)
def test_dense_is_left_out_where_it_would_not_fit_or_not_end(
    run: Any, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, sentence: str
) -> None:
    monkeypatch.setattr(kernel_runs, limit, value)
    _, events = run(PLAN, awkward_rows(), repeats=1, backends=["dense"])
    assert sentence in newest_rows(events)["dense"]["reason"]


@pytest.mark.parametrize(
    ("arguments", "plan", "sentence"),
    [
        ({"backends": ["magic"]}, PLAN, "backends must be some of"),
        ({"repeats": 0}, PLAN, "repeats at least 1"),
        ({"tree": 7}, PLAN, "there is no tree 7: this packing has 1"),
        ({}, replace(PLAN, model="nothing-like-it"), "neither a preset"),
        (
            {},
            replace(PLAN, device="cuda:99"),
            "cuda:99 is no device .* choose one of cpu",
        ),
        ({}, replace(PLAN, device="h200-141"), "h200-141 is no device"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    run: Any, arguments: Mapping[str, Any], plan: TuningPlan, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        run(plan, awkward_rows(), **arguments)


def test_the_shape_is_the_models(golden_rows: Any) -> None:
    problem = KernelProblem.of(
        TuningPlan(max_tokens_per_mb=8192, model="qwen3-0.6b", dtype="bfloat16"),
        golden_rows("gsm8k_solutions").first_groups(8),
        0,
    )
    q, k, _, dout = problem.inputs()
    assert q.shape == (1, 16, problem.mask.n, 128) and k.shape[1] == 8
    assert q.dtype == dout.dtype == torch.bfloat16 and problem.group == 2
    assert usable_device("cpu") == problem.device


@settings(deadline=None, max_examples=40)
@given(forests.forests(max_padding=0))
def test_the_reference_is_plain_attention(subtree_end: Any) -> None:
    x = forests.inputs(len(subtree_end))
    true = forests.reference(x, subtree_end)
    mask = TreeMask.from_subtree_end(subtree_end)
    found = Reference.of(x.q, x.k, x.v, x.dout, mask, budget=float("inf"))
    for name in ("out", "dq", "dk", "dv"):
        torch.testing.assert_close(getattr(found, name), getattr(true, name))
    assert max(found.errors(true.out, (true.dq, true.dk, true.dv)).values()) < 1e-12


def test_a_reference_over_some_queries_still_covers_all_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_reference, "BLOCK", 8)
    subtree_end = forests.random_forest(np.random.default_rng(3), 20, 9)
    mask = TreeMask.from_subtree_end(subtree_end)
    x = forests.inputs(mask.n)
    part = Reference.of(x.q, x.k, x.v, x.dout, mask, budget=4 * 16 * mask.n**2 / 2 / 3)
    assert 0 < int(part.queries.sum()) <= mask.n // 3 + 8
    assert bool(part.queries[-1]) and "drawn evenly" in part.description
    true = forests.reference(replace(x, dout=part.dout), subtree_end)
    assert max(part.errors(true.out, (true.dq, true.dk, true.dv)).values()) < 1e-12
    for leak in range(3):
        wrong = [true.dq, true.dk, true.dv]
        wrong[leak] = wrong[leak].clone()
        wrong[leak][0, 0, 0, 0] += 0.1
        assert max(part.errors(true.out, tuple(wrong)).values()) > 1e-3


@settings(deadline=None)
@given(forests.forests(max_nodes=100, max_tokens=40))
def test_a_small_tree_keeps_the_branches(subtree_end: Any) -> None:
    nodes = TreeMask.from_subtree_end(subtree_end).nodes
    small = TreeMask.from_subtree_end(small_tree(nodes)).nodes
    tokens = int((small.stop - small.start).sum())
    kept = min(len(nodes), 64)
    assert tokens <= MOST_TOKENS
    # An only child whose siblings were cut off goes on with its parent's run.
    assert len(small) <= kept
    if len(nodes) <= 64:
        assert small.parent.tolist() == nodes.parent.tolist()
    if nodes.stop[-1] <= MOST_TOKENS and len(nodes) <= 64:
        assert small.stop.tolist() == nodes.stop.tolist()


def test_the_interpreter_says_what_went_wrong() -> None:
    pytest.importorskip("triton")
    mask = TreeMask.from_subtree_end(np.full(3, 3, dtype=np.int32))
    with pytest.raises(RuntimeError, match=r"interpreter failed: .*head dim"):
        interpret(mask, group=1, head_dim=24)


def test_flat_rows_that_would_take_too_long_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.array([40, 0, 10, 20, 30, 1], dtype=np.int64)
    shape = ((4, 2), 16, torch.device("cpu"), torch.float32)
    whole = FlatAttention(lengths, *shape)
    areas = np.array([820, 55, 210, 465, 1])
    assert (whole.area, whole.timed, whole.rows, whole.scale) == (areas.sum(), 5, 5, 1.0)
    monkeypatch.setattr(kernel_flat, "_CPU_BUDGET", 4 * whole.area * 4 * 16 / 2)
    half = FlatAttention(lengths, *shape)
    assert half.timed == 2 and half.scale == pytest.approx((465 + 55) / areas.sum())
    assert all(seconds > 0 for seconds in half.step().values())


@pytest.mark.parametrize(
    ("device", "dtype", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312.0),
        ("NVIDIA H100 PCIe", "bfloat16", 756.0),
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.0),
        ("NVIDIA L40S", "float32", 91.6),
        ("NVIDIA L400", "bfloat16", None),
        ("cpu x86_64, 2 threads", "float32", None),
    ],
)
def test_peaks_are_known_by_the_devices_name(device: str, dtype: str, peak: float | None) -> None:
    assert peak_tflops(device, dtype) == peak
