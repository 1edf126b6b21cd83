"""A step's time on a GPU that is not here: from its data sheet, marked estimated, with a band.

``t = (linear FLOPs + attention FLOPs) / (peak x utilisation) + optimizer bytes / bandwidth``.
Notable:
- linear layers: 2 FLOPs a parameter and token forward, twice that backward, one forward more with
  checkpointing (https://arxiv.org/abs/2205.05198); the head runs on predicted tokens only
- attention: ``4 heads head_dim`` FLOPs a visible pair forward, 2.5 times that backward
- memory is traced without a GPU (``kernels.memory.peak``)
- the band is the utilisation that training steps are known to reach, 25 % to 55 % of the peak
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.spec import aligned
from tuning.plan.batch import Batch
from tuning.plan.gpus import Gpu
from tuning.plan.plan import TuningPlan
from tuning.sweep.batches import OtherBatches, candidate_caps, counted, over_batches
from tuning.sweep.costmodel import MemoryFit
from tuning.sweep.pick import recommend
from tuning.sweep.result import Candidate, SweepResult

_UTILISATION = (0.25, 0.4, 0.55)
_TRACED = 4
_ESTIMATED = (
    "Times are estimated from FLOPs and bandwidth at 25 % to 55 % of the peak: run the same "
    "command on the GPU to measure."
)
_ADAM_BYTES = {"float32": 28, "bfloat16": 16}
"""Read and written per parameter: two moments, master weight, gradient, parameter."""


@dataclass(frozen=True)
class Shape:
    """What a step's FLOPs depend on: a decoder with gated MLPs."""

    layer_parameters: int
    head_parameters: int
    parameters: int
    layers: int
    heads: int
    head_dim: int

    @classmethod
    def of(cls, model: str) -> Shape:
        """From a preset's or a model's config. Raises ModelNotFound."""
        from kernels.model import resolve_config

        c = resolve_config(model)
        hidden, layers, heads = c.hidden_size, c.num_hidden_layers, c.num_attention_heads
        head_dim = getattr(c, "head_dim", None) or hidden // heads
        kv_heads = getattr(c, "num_key_value_heads", None) or heads
        attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
        in_layers = layers * (attention + 3 * hidden * c.intermediate_size)
        head = c.vocab_size * hidden
        tied = 1 if c.tie_word_embeddings else 2
        return cls(in_layers, head, in_layers + tied * head, layers, heads, head_dim)


def step_seconds(
    gpu: Gpu, shape: Shape, plan: TuningPlan, padded: int, predicted: int, area: int
) -> tuple[float, float, float]:
    """Least, middle and most seconds of a step of one rank.

    padded: tokens that run through the layers; predicted: tokens with logits; area: visible pairs
    """
    passes = 4 if plan.gradient_checkpointing else 3
    linear = 2 * passes * (shape.layer_parameters * padded + shape.head_parameters * predicted)
    rounds = 3.5 + (1 if plan.gradient_checkpointing else 0)
    attention = 4 * rounds * shape.layers * shape.heads * shape.head_dim * area
    peak = gpu.bfloat16_tflops if plan.dtype == "bfloat16" else gpu.float32_tflops
    moved = _ADAM_BYTES[plan.optimizer_dtype] * shape.parameters / plan.dp_size
    optimizer = plan.ppo_n_minibatches * moved / (gpu.bandwidth_gbs * 1e9)
    flops = (linear + attention) / plan.tp_size
    low, middle, high = (flops / (peak * 1e12 * u) + optimizer for u in _UTILISATION[::-1])
    return low, middle, high


def estimate_sweep(
    rows: Rows, plan: TuningPlan, gpu: Gpu, longest_row: int = 0, others: Sequence[Rows] = ()
) -> SweepResult:
    """All candidates on a GPU that is not here; nothing is measured, all of it says so.

    rows: the plan's batch; others: the batches of the data that follow it
    """
    batch = Batch(rows, PrefixOrder.of(rows))
    more = OtherBatches.of(plan, others)
    shape = Shape.of(plan.model)
    roofline = _Roofline(gpu, shape, plan)
    budget = int((plan.memory_budget_gib or gpu.memory_gib) * 2**30)
    memory = _memory(batch, plan, budget, longest_row)
    points = []
    for cap in candidate_caps(batch, plan, longest_row, memory.largest):
        one = more.candidate(batch, cap, longest_row)
        if not one.refused:
            one = replace(
                one,
                fits=memory.fits(cap),
                memory_bytes=memory.predict(cap),
                memory_kind="estimated",
            )
            if one.fits:
                one = roofline.trees(one, batch, more)
        points.append(one)
    flat = roofline.flat(batch, points)
    blank = more.blank(
        batch,
        longest_row,
        model=f"{plan.model}: {shape.parameters:,} parameters, {plan.dtype}",
        machine=f"{gpu.name} (not measured)",
        budget_bytes=budget,
    )
    return replace(
        blank,
        points=tuple(points),
        baselines={"flat": flat, "padded": None},
        pick=recommend(points, {"flat": flat}, budget),
        memory_note="peak of Espalier's own step, traced without a GPU",
        notes=(*blank.notes, _ESTIMATED),
        finished=True,
    )


def _memory(batch: Batch, plan: TuningPlan, budget: int, longest_row: int) -> MemoryFit:
    """Traced at two caps; peak memory grows with tokens in nearly straight pieces."""
    from kernels.memory import estimate_memory

    low = aligned(max(batch.rows.longest, longest_row, 1), plan.alignment)
    peaks = {
        cap: estimate_memory(
            plan.model,
            cap,
            dtype=plan.dtype,
            optimizer_dtype=plan.optimizer_dtype,
            gradient_checkpointing=plan.gradient_checkpointing,
            head_chunk=plan.head_chunk,
            dp_size=plan.dp_size,
        ).peak_bytes
        for cap in (low, _TRACED * low)
    }
    return MemoryFit.of(peaks, budget)


@dataclass(frozen=True)
class _Roofline:
    """Steps of a plan on a GPU."""

    gpu: Gpu
    shape: Shape
    plan: TuningPlan

    def tree(self, one: Candidate, batch: Batch) -> Candidate:
        """``one`` with the time of its trees."""
        simulation = batch.simulation(self.plan, one.max_tokens_per_mb)
        return self._timed(one, batch, simulation.tree_tokens, simulation.tree_area)

    def trees(self, one: Candidate, batch: Batch, more: OtherBatches) -> Candidate:
        """The same, with the mean and the worst step of all batches where there are several."""
        cap, timed = one.max_tokens_per_mb, self.tree(one, batch)
        others = [self.tree(counted(other, self.plan, cap), other) for other in more.batches]
        return over_batches(timed, [each.step_s or 0.0 for each in (timed, *others)])

    def flat(self, batch: Batch, points: list[Candidate]) -> Candidate | None:
        """Flat micro-batches at the first candidate that AReaL takes."""
        cap = next((one.max_tokens_per_mb for one in points if not one.refused and one.fits), None)
        simulation = batch.simulation(self.plan, cap) if cap else None
        paid = simulation.comparison.flat if simulation else None
        if cap is None or simulation is None or paid is None:
            return None
        tokens = batch.rows.n_tokens
        blank = Candidate(cap, paid_tokens=paid, padded_token_ratio=paid / tokens)
        return self._timed(blank, batch, tokens, simulation.flat_area)

    def _timed(self, one: Candidate, batch: Batch, predicted: int, area: int) -> Candidate:
        """predicted: tokens with logits; area: visible pairs; both of all ranks."""
        parts = (n // self.plan.dp_size for n in (one.paid_tokens or 0, predicted, area))
        low, middle, high = step_seconds(self.gpu, self.shape, self.plan, *parts)
        return replace(
            one,
            step_s=middle,
            step_kind="estimated",
            low_s=low,
            high_s=high,
            tokens_per_s=batch.rows.n_tokens / middle,
            message=f"roofline of {self.gpu.name}: nothing was measured on it",
        )
