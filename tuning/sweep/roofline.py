"""Steps on a GPU that is not here, at every candidate: estimated, with a band, and marked so.

Notable:
- memory is traced without a GPU (``kernels.memory``), for the step that the plan chose
- the band is all that is not known; what differs between caps is kept beside it, for the pick
- one step that was timed on the GPU fixes what caps share: the band is then what differs
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.spec import aligned
from tuning.plan.batch import Batch
from tuning.plan.gpus import Gpu, gpu_named
from tuning.plan.numbers import gib, percent
from tuning.plan.plan import STEP_NAMES, Layout, TuningPlan
from tuning.sweep.batches import OtherBatches, candidate_caps, over_batches
from tuning.sweep.headroom import with_headroom
from tuning.sweep.physics import UTILISATION, Physics, Shape, StepTime, Work
from tuning.sweep.pick import recommend
from tuning.sweep.result import Candidate, SweepResult

_ESTIMATED = (
    f"Times are estimated from FLOPs, bytes and traffic at {UTILISATION[0]:.0%} to "
    f"{UTILISATION[2]:.0%} of the peak: run the same command on the GPU to measure."
)
_CHUNKS = 2048
_BOUNDS = "AReaL's masks and loss are in it by their bytes: the least that they can take."


def estimate_sweep(
    rows: Rows,
    plan: TuningPlan,
    gpu: Gpu,
    longest_row: int = 0,
    others: Sequence[Rows] = (),
    *,
    efficiencies: Mapping[str, float] | None = None,
    timed: tuple[int, float] | None = None,
) -> SweepResult:
    """All candidates on a GPU that is not here; nothing is measured, all of it says so.

    rows: the plan's batch; others: the batches of the data that follow it
    efficiencies: part of the peak that attention reached there, by backend (``benchmarks.gpu``)
    timed: a cap, and seconds of a step that was timed at it on such a GPU
    Raises ValueError where that cap has no estimate.
    """
    from kernels.memory import MemoryCurve, estimate_memory

    batch = Batch(rows, PrefixOrder.of(rows))
    more = OtherBatches.of(plan, others)
    shape = Shape.of(plan.model)
    backend = "flex" if plan.step_of == "areal" else "triton"
    steps = _Steps(Physics(gpu, shape, plan, (efficiencies or {}).get(backend)))
    budget = int((plan.memory_budget_gib or gpu.memory_gib) * 2**30)
    memory = MemoryCurve.through(
        # chunks of a head, ours or AReaL's, are whole from here on
        aligned(max(rows.longest, longest_row, 2 * plan.head_chunk, _CHUNKS), plan.alignment),
        lambda n: estimate_memory(
            plan.model,
            n,
            dtype=plan.dtype,
            optimizer_dtype=plan.optimizer_dtype,
            gradient_checkpointing=plan.gradient_checkpointing,
            head_chunk=plan.head_chunk,
            dp_size=plan.dp_size,
            target=plan.step_of,
            engine=plan.engine,
        ),
    )
    points = []
    for cap in candidate_caps(batch, plan, longest_row, memory.largest(budget)):
        one = replace(more.candidate(batch, cap, longest_row), step_of=plan.step_of)
        if not one.refused:
            needed = memory.at(cap)
            one = replace(
                one,
                fits=needed.peak_bytes <= budget,
                memory_bytes=needed.peak_bytes,
                memory_kind="estimated",
                message=f"needs {gib(needed.peak_bytes)}, most of all for {needed.largest_part}",
            )
            if one.fits:
                one = steps.trees(one, batch, more)
        points.append(one)
    flat = steps.flat(batch, points)
    if timed is not None:
        cap, seconds = timed
        points, flat, told = calibrated(points, flat, int(cap), seconds)
    name = STEP_NAMES[plan.step_of]
    blank = more.blank(
        batch,
        longest_row,
        model=f"{plan.model}: {shape.parameters:,} parameters, {plan.dtype}",
        machine=f"{gpu.name} (not measured)",
        budget_bytes=budget,
    )
    pick = recommend(points, {"flat": flat}, budget)
    return replace(
        blank,
        points=tuple(points),
        baselines={"flat": flat, "padded": None},
        pick=with_headroom(
            pick, batch, plan, lambda cap: memory.at(cap).peak_bytes, budget, longest_row
        ),
        memory_note=f"peak of the step of {name}, traced without a GPU",
        notes=(
            *blank.notes,
            f"Steps are those of {name}.",
            _ESTIMATED if timed is None else told,
            *([_BOUNDS] if plan.step_of == "areal" else []),
        ),
        finished=True,
    )


def calibrated(
    points: Sequence[Candidate], flat: Candidate | None, cap: int, seconds: float
) -> tuple[list[Candidate], Candidate | None, str]:
    """All estimates, given that a step at ``cap`` took ``seconds``; and by how much that helps.

    What caps share cancels: a band is what their scenarios leave between a cap and the timed one.
    Raises ValueError where the cap has no estimate.
    """
    base = next((one for one in points if one.max_tokens_per_mb == cap and one.step_s), None)
    if base is None:
        raise ValueError(f"no step is estimated at {cap:,}: add it to --caps, or take one that is")

    def given(one: Candidate) -> Candidate:
        if not one.step_s:
            return one
        ratios = [a / b for a, b in zip(one.scenarios_s, base.scenarios_s, strict=True)]
        factor = seconds / (base.step_s or seconds)
        step_s = seconds * ratios[0]
        return replace(
            one,
            step_s=step_s,
            low_s=seconds * min(ratios),
            high_s=seconds * max(ratios),
            scenarios_s=tuple(seconds * ratio for ratio in ratios),
            tokens_per_s=(one.tokens_per_s or 0.0) / factor,
            mean_predicted_s=_times(one.mean_predicted_s, factor),
            worst_predicted_s=_times(one.worst_predicted_s, factor),
            message=f"scaled to {seconds:,.3f} s timed at {cap:,}",
        )

    after = [given(one) for one in points]
    before_band, after_band = _widest(points), _widest(after)
    told = (
        f"Times are scaled to {seconds:,.3f} s timed at {cap:,}: the widest band goes from "
        f"±{percent(before_band)} to ±{percent(after_band)}."
    )
    return after, None if flat is None else given(flat), told


def what_if(
    rows: Rows,
    plan: TuningPlan,
    models: Iterable[str],
    gpus: Iterable[str],
    longest_row: int = 0,
    efficiencies: Mapping[str, float] | None = None,
) -> list[tuple[str, str, SweepResult]]:
    """Model, GPU and sweep of each pair, all over the plan's batch. Raises ValueError."""
    found = []
    for model in models:
        for device in gpus:
            gpu = gpu_named(device)
            if gpu is None:
                raise ValueError(f"{device} is no GPU of the table, nor gpu:TFLOPS:GB_PER_S:GIB")
            one = replace(plan, model=model, device=device)
            swept = estimate_sweep(rows, one, gpu, longest_row, efficiencies=efficiencies)
            found.append((model, device, swept))
    return found


def _times(seconds: float | None, factor: float) -> float | None:
    return None if seconds is None else seconds * factor


def _widest(points: Sequence[Candidate]) -> float:
    """The widest band, as half of it over the estimate."""
    bands = [
        ((one.high_s or 0.0) - (one.low_s or 0.0)) / 2 / one.step_s for one in points if one.step_s
    ]
    return max(bands, default=0.0)


@dataclass(frozen=True)
class _Steps:
    """Steps of a plan on a GPU."""

    physics: Physics

    def trees(self, one: Candidate, batch: Batch, more: OtherBatches) -> Candidate:
        """``one`` with the time of its trees; of all batches too, where there are several."""
        cap = one.max_tokens_per_mb
        timed = self._timed(one, batch, self._time(batch, cap, "tree"))
        others = [self._time(other, cap, "tree").middle for other in more.batches]
        return over_batches(timed, [timed.step_s or 0.0, *others])

    def flat(self, batch: Batch, points: list[Candidate]) -> Candidate | None:
        """Flat micro-batches at the first candidate that AReaL takes."""
        plan = self.physics.plan
        cap = next((one.max_tokens_per_mb for one in points if not one.refused and one.fits), None)
        paid = batch.simulation(plan, cap).comparison.flat if cap else None
        if cap is None or paid is None:
            return None
        blank = Candidate(
            cap,
            paid_tokens=paid,
            padded_token_ratio=paid / batch.rows.n_tokens,
            step_of=plan.step_of,
        )
        return self._timed(blank, batch, self._time(batch, cap, "flat"))

    def _time(self, batch: Batch, cap: int, mode: Layout) -> StepTime:
        from tuning.measure.shares import share_of

        simulation = batch.simulation(self.physics.plan, cap)
        return self.physics.step(Work.of(share_of(batch.rows, simulation, mode)))

    def _timed(self, one: Candidate, batch: Batch, found: StepTime) -> Candidate:
        largest = max(found.parts, key=lambda name: found.parts[name])
        return replace(
            one,
            step_s=found.middle,
            step_kind="estimated",
            low_s=found.low,
            high_s=found.high,
            scenarios_s=found.scenarios,
            tokens_per_s=batch.rows.n_tokens / found.middle,
            message=f"by the data sheet of {self.physics.gpu.name}, not measured; most of it is "
            f"{largest} ({found.parts[largest]:,.2f} s)",
        )
