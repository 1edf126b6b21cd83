"""A GPU run's file: what it says, what is refused, what estimates take from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuning.measure import gpu_run
from tuning.measure.gpu_run import GpuRunError, keep_gpu_run, kept_gpu_run, read_gpu_run

MACHINE = {
    "device": "NVIDIA H200",
    "dry_run": False,
    "when": "2026-11-30T10:00:00+00:00",
    "packages": {"torch": "2.11.0", "triton": "3.6.0", "flash_attn": None},
}


def row(provider: str, both_ms: float, **more: Any) -> dict[str, Any]:
    shape = {"tree": "agent_32k", "tokens": 1000, "area": 10**8, "heads": 32, "head_dim": 128}
    return {"provider": provider, "dtype": "bfloat16", **shape, "both_ms_p50": both_ms, **more}


def text(attention: list[dict[str, Any]], **machine: Any) -> str:
    tables = {"compile": [], "checks": [], "steps": [], "attention": attention}
    return json.dumps({"machine": MACHINE | machine, **tables})


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(gpu_run, "OF_PROJECT", tmp_path / "none.json")


def test_shares_are_those_of_products_over_visible_pairs() -> None:
    kernels = {
        "kernel_forward_ms": 4.0,
        "kernel_forward_tile": "128x128/8/2",
        "kernel_forward_efficiency": 0.8,
        "kernel_dkv_ms": 8.0,
    }
    rows = [row("triton", ms, **kernels) for ms in (20.0, 10.0, 40.0)]
    rows += [row("flex_ours", 30.0, reason="wrong on this tree"), {"provider": "dense"}]
    run = read_gpu_run(text(rows), "gpu.json")
    found = {(one.kernel, one.milliseconds): one for one in run.efficiencies()}
    assert set(found) == {("forward", 4.0), ("dkv", 8.0), *(("both", m) for m in (20, 10, 40))}
    product = 2 * 128 * 32 * 1e8 / 989e12  # seconds of one matrix product at the peak
    forward, dkv = found["forward", 4.0], found["dkv", 8.0]
    assert found["both", 10.0].share == pytest.approx(7 * product / 0.010)
    assert forward.share == pytest.approx(2 * product / 0.004)
    assert dkv.share == pytest.approx(4 * product / 0.008)
    assert forward.tile == "128x128/8/2"
    assert forward.share_of_tiles == pytest.approx(forward.share / 0.8)
    assert dkv.block_efficiency is None and dkv.share_of_tiles is None
    assert run.by_backend() == {"triton": pytest.approx(7 * product / 0.020)}
    spread = run.share()
    assert spread is not None and spread.trees == 3
    assert spread.middle == pytest.approx(2 * spread.low) == pytest.approx(spread.high / 2)
    assert spread.provenance == (
        "benchmarks.gpu on NVIDIA H200, 2026-11-30 10:00 UTC, torch 2.11.0, triton 3.6.0"
    )
    assert run.share("flex_ours") is None and run.share(head_dim=64) is None
    assert read_gpu_run(text(rows, device="A card of ours"), "x").efficiencies() == []


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", '"machine"'),
        ('{"machine": {"dry_run": false}}', '"compile"'),
        (text([], dry_run=True), "dry run, made on a CPU with a played device"),
        (text([], dry_run=None), "dry run"),
        (text([], device=None, reason="torch sees no CUDA device"), "found no GPU .torch sees"),
    ],
)
def test_what_is_no_measurement_is_refused(broken: str, said: str) -> None:
    with pytest.raises(GpuRunError, match=said):
        keep_gpu_run(broken, "gpu.json")
    assert kept_gpu_run() is None


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([*row("triton", 1.0), "kernel_dq_ms", "reason"]), inner, max_size=6),
    max_leaves=12,
))  # fmt: skip
def test_a_row_of_another_hand_breaks_nothing(value: Any) -> None:
    """What stands in a file is anybody's: odd values are left out, they raise nothing."""
    rows = [row("triton", 1.0) | value] if isinstance(value, dict) else [row("triton", value)]
    run = read_gpu_run(text(rows, packages=value, when=value), "gpu.json")
    assert all(one.share > 0 for one in run.efficiencies())
    assert run.provenance.startswith("benchmarks.gpu on NVIDIA H200")


def test_a_run_is_kept_and_found_again() -> None:
    keep_gpu_run(text([row("triton", 10.0)]), "gpu.json")
    with pytest.raises(GpuRunError):
        keep_gpu_run(text([row("triton", 5.0)], dry_run=True), "other.json")
    kept = kept_gpu_run()
    assert kept is not None and [one.milliseconds for one in kept.efficiencies()] == [10.0]
