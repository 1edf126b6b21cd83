"""Tree attention on one tree of the user's, by every backend: is it right, and how fast.

Notable:
- every backend is checked against a float64 reference before it is timed, on the same inputs;
  the check is its warm-up
- the timed runs of all backends take turns, so that a busy machine slows all of them alike
- the rows one by one, nothing shared, run beside them: what flat training pays
- on a CPU our Triton kernels run in Triton's interpreter on a small tree: errors, and no time

Events: "problem" (what is asked), "row" (all that is known of one backend; a newer one replaces an
older), "result" (the fastest, and whether all are right).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from kernels.attention import (
    BACKENDS,
    BLOCK_SIZE,
    CascadePlan,
    Index,
    TreeMask,
    tree_attention,
    unavailable,
)
from kernels.timing import PhaseClock
from kernels.triton.configs import heads_per_tile
from kernels.triton.tree import device_configs
from tuning.jobs.task import Task
from tuning.measure.machine import fixed_threads, machine_name
from tuning.measure.memory_watch import MemoryWatch
from tuning.measure.proofs.flat import FlatAttention
from tuning.measure.proofs.interpreter import interpret
from tuning.measure.proofs.problem import KernelProblem
from tuning.measure.proofs.reference import BUDGET, TOLERANCES, Reference
from tuning.plan.gpus import peak_tflops

FLAT = "rows"
REPEATS = 5
_PATIENCE_S = 20.0
"""A way that has run for so long is not timed again: its figures say how many runs they are of."""
_FAILURES = (RuntimeError, MemoryError, ImportError)
_DENSE_SCORES = 1.5e8
"""Entries of (heads, N, N) that the dense backend is run for on a CPU: some 10 s a pass."""
_DENSE_COPIES = 7
"""Float32 matrices of (heads, N, N) that the dense backend holds at once, forward and backward."""


@dataclass
class Way:
    """One way to attend, and what is known of it so far."""

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    forward_only: bool = False
    samples: list[dict[str, float]] = field(default_factory=list)

    @property
    def runs(self) -> bool:
        return "reason" not in self.facts

    @property
    def spent_s(self) -> float:
        return sum(sum(sample.values()) for sample in self.samples)


def run(task: Task) -> str:
    """Do the job; arguments: ``tree`` (0), ``backends`` (all), ``repeats`` (5)."""
    names = list(task.arguments.get("backends", BACKENDS))
    repeats = int(task.arguments.get("repeats", REPEATS))
    unknown = [name for name in names if name not in BACKENDS]
    if unknown or repeats < 1:
        raise ValueError(
            f"backends must be some of {', '.join(BACKENDS)} and repeats at least 1; "
            f"asked were {', '.join(names)} and {repeats}"
        )
    torch.set_num_threads(fixed_threads())
    task.emit("progress", message="packing the tree")
    problem = KernelProblem.of(task.plan, task.rows, int(task.arguments.get("tree", 0)))
    q, k, v, dout = problem.inputs()
    task.emit("progress", message="computing the float64 reference")
    reference = Reference.of(q, k, v, dout, problem.mask, BUDGET[problem.device.type])
    task.emit("problem", reference=reference.description, **problem.facts())

    ways = [Way(name, {"summary": BACKENDS[name].summary}) for name in names]
    for way in ways:
        task.emit("progress", message=f"checking {way.name}")
        _check(way, problem, reference, (q, k, v))
        _show(task, way, problem)
    flat_way, flat = _flat(problem)
    ways.append(flat_way)
    for repeat in range(repeats):
        for way in ways:
            if way.runs and way.spent_s < _PATIENCE_S:
                message = f"timing {way.name}: run {repeat + 1} of {repeats}"
                task.emit("progress", message=message)
                way.samples.append(_time(way, problem, (q, k, v, dout), flat))
                _show(task, way, problem)
    for way in ways:
        if way.name == "triton" and not way.runs and problem.device.type == "cpu":
            task.emit("progress", message="proving the Triton kernels in the interpreter")
            _interpret(way, problem)
            _show(task, way, problem)
    return _conclude(task, [way for way in ways if way is not flat_way])


def _check(
    way: Way, problem: KernelProblem, reference: Reference, inputs: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Whether the backend can run, its errors, and its memory; also the first warm-up."""
    shape = (problem.device, problem.dtype, problem.head_dim, problem.mask.n)
    reason = unavailable(way.name, *shape, needs_grad=True)
    if reason and not unavailable(way.name, *shape, needs_grad=False):
        way.forward_only, way.facts["backward_reason"] = True, reason
    elif reason or (reason := _too_large(way.name, problem)):
        way.facts["reason"] = reason
        return
    tile, visited = _visited(way.name, problem)
    way.facts |= {"tile": tile, "visited_area": visited, "mask_area": problem.mask.mask_area}
    way.facts["block_efficiency"] = problem.mask.mask_area / visited
    MemoryWatch(problem.device).release()  # else what was freed would count as idle memory
    watch = MemoryWatch(problem.device)
    before = torch.cuda.memory_allocated() if problem.device.type == "cuda" else 0
    try:
        with watch.peak() as peak:
            with torch.set_grad_enabled(not way.forward_only):
                out = tree_attention(*inputs, problem.mask, backend=way.name)
            gradients = () if way.forward_only else _gradients(out, inputs, reference.dout)
        errors = reference.errors(out, gradients)
    except _FAILURES as error:
        way.facts["reason"] = _failure(error)
        return
    if peak.bytes is not None and peak.bytes > before:
        way.facts |= {"memory_bytes": peak.bytes - before, "memory_kind": watch.kind}
    way.facts |= _judged(errors, problem.dtype)


def _judged(errors: Mapping[str, float], dtype: torch.dtype) -> dict[str, Any]:
    tolerance = TOLERANCES[dtype]
    right = all(error <= tolerance for error in errors.values())  # NaN is not
    return {"errors": dict(errors), "tolerance": tolerance, "right": right}


def _gradients(
    out: Tensor, inputs: tuple[Tensor, Tensor, Tensor], dout: Tensor
) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = torch.autograd.grad(out, inputs, dout)
    return found


def _too_large(name: str, problem: KernelProblem) -> str | None:
    """Why dense would not fit or not end: a CPU kills the process, it does not say no."""
    if name != "dense":
        return None
    scores = problem.query_heads * problem.mask.n**2
    if problem.device.type == "cpu" and scores > _DENSE_SCORES:
        return (
            f"its {scores:,} scores would take minutes on a CPU, more than it is worth; it runs "
            "on trees of fewer tokens"
        )
    needs = scores * 4 * _DENSE_COPIES
    if problem.device.type == "cuda":
        free = torch.cuda.mem_get_info(problem.device)[0]
    else:
        free = psutil.virtual_memory().available
    if needs < 0.8 * free:
        return None
    return (
        f"its N x N scores would take about {needs / 2**30:,.0f} GiB here, "
        f"and {free / 2**30:,.0f} GiB are free"
    )


def _visited(name: str, problem: KernelProblem) -> tuple[list[int] | None, int]:
    """A backend's (query, key) tile where it has one, and how many pairs it computes."""
    mask = problem.mask
    if name == "dense":
        return None, mask.n**2
    if name == "cascade":
        return None, _cascade_area(mask)
    tile_q = tile_k = BLOCK_SIZE
    if name == "triton":
        configs = device_configs(problem.device, problem.dtype, problem.head_dim, problem.group)
        forward = configs["forward"]
        tile_q = forward.rows // heads_per_tile(problem.group, forward.rows)
        tile_k = forward.keys
    return [tile_q, tile_k], mask.visited_area(tile_q, tile_k)


def _cascade_area(mask: TreeMask) -> int:
    """Pairs in the plan's calls; a causal call counts half, as flash attention skips the rest."""
    total = 0
    for call in CascadePlan(mask).calls():
        queries, keys = _size(call.queries), _size(call.keys)
        total += queries * (queries + 1) // 2 if call.kind.name == "CAUSAL" else queries * keys
    return total


def _size(index: Index) -> int:
    return index.stop - index.start if isinstance(index, slice) else len(index)


def _flat(problem: KernelProblem) -> tuple[Way, FlatAttention | None]:
    way = Way(FLAT, {"summary": "each row by itself, nothing shared: what flat training pays"})
    heads = (problem.query_heads, problem.key_heads)
    try:
        flat = FlatAttention(
            problem.row_lengths, heads, problem.head_dim, problem.device, problem.dtype
        )
        flat.step()
    except _FAILURES as error:
        way.facts["reason"] = _failure(error)
        return way, None
    way.facts["mask_area"] = flat.area
    if flat.timed < flat.rows:
        way.facts["scaled"] = (
            f"estimated: {flat.timed:,} of {flat.rows:,} rows are timed, {flat.scale:.0%} of the "
            "area, and scaled to all of it"
        )
    return way, flat


def _time(
    way: Way,
    problem: KernelProblem,
    inputs: tuple[Tensor, Tensor, Tensor, Tensor],
    flat: FlatAttention | None,
) -> dict[str, float]:
    """Seconds of one forward and one backward; a failure ends the way's part with its reason."""
    q, k, v, dout = inputs
    try:
        if way.name == FLAT:
            assert flat is not None  # a way that runs has its inputs
            return flat.step()
        clock = PhaseClock(problem.device)
        with torch.set_grad_enabled(not way.forward_only):
            with clock.phase("forward"):
                out = tree_attention(q, k, v, problem.mask, backend=way.name)
            if not way.forward_only:
                with clock.phase("backward"):
                    _gradients(out, (q, k, v), dout)
        return clock.seconds()
    except _FAILURES as error:
        way.facts["reason"] = _failure(error)
        return {}


def _interpret(way: Way, problem: KernelProblem) -> None:
    try:
        proof = interpret(problem.mask, problem.group, problem.head_dim)
    except RuntimeError as error:
        way.facts["interpreter_failed"] = str(error)
        return
    way.facts |= _judged(proof["errors"], torch.float32) | {"interpreter": proof}


def _failure(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"it failed: {lines[0] if lines else type(error).__name__}"


def _show(task: Task, way: Way, problem: KernelProblem) -> None:
    """Emit all that is known of a way."""
    peak = peak_tflops(machine_name(problem.device), problem.plan.dtype)
    times: dict[str, Any] = {}
    for phase, factor in (("forward", 1.0), ("backward", 2.5)):
        samples = [seconds[phase] for seconds in way.samples if phase in seconds]
        if not samples or not way.runs:
            continue
        low, median, high = (float(np.percentile(samples, at)) for at in (20, 50, 80))
        speed = factor * problem.flops(way.facts["mask_area"]) / median / 1e12
        times[phase] = {
            "median_ms": 1e3 * median,
            "p20_ms": 1e3 * low,
            "p80_ms": 1e3 * high,
            "n": len(samples),
            "tflops": speed,
            "peak_share": speed / peak if peak else None,
        }
    task.emit("row", backend=way.name, **way.facts, **times)


def _conclude(task: Task, ways: Sequence[Way]) -> str:
    timed = {way.name: way for way in ways if way.runs and way.samples and not way.forward_only}
    totals = {n: float(np.median([sum(s.values()) for s in w.samples])) for n, w in timed.items()}
    fastest = min(totals, key=totals.__getitem__, default=None)
    wrong = [way.name for way in ways if way.facts.get("right") is False]
    task.emit("result", fastest=fastest, wrong=wrong)
    if wrong:
        return f"errors beyond rounding: {', '.join(wrong)}"
    if fastest is None:
        return "no backend that was asked for can train here"
    return f"all are right; {fastest} is the fastest, {1e3 * totals[fastest]:,.1f} ms a pass"
