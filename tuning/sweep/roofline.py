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
from tuning.plan.device_peaks import peak_tflops
from tuning.plan.plan import TuningPlan
from tuning.sweep.batches import OtherBatches, too_long
from tuning.sweep.candidates import candidate_caps, counted
from tuning.sweep.memory_fit import MemoryFit
from tuning.sweep.pick import recommend
from tuning.sweep.result import Candidate, SweepResult

_UTILISATION = (0.25, 0.4, 0.55)
_TRACED = 4
_ADAM_BYTES = {"float32": 28, "bfloat16": 16}
"""Read and written per parameter: two moments, master weight, gradient, parameter."""


@dataclass(frozen=True)
class Gpu:
    """A GPU by its data sheet: dense bfloat16 TFLOP/s, GB/s of memory, GiB of memory."""

    name: str
    bfloat16_tflops: float
    float32_tflops: float
    bandwidth_gbs: float
    memory_gib: float


# bandwidth in GB/s and memory in GiB, by the makers' data sheets
_MEMORY = {
    "a100-40": (1_555, 40),
    "a100-80": (2_039, 80),
    "h100-80": (3_350, 80),
    "h200-141": (4_800, 141),
    "b200": (8_000, 180),
    "l40s": (864, 48),
    "rtx-4090": (1_008, 24),
}
GPUS = tuple(_MEMORY)


def gpu_named(device: str) -> Gpu | None:
    """A GPU of the table, or ``gpu:TFLOPS:GB_PER_S:GIB`` of one's own; None for a real device.

    Raises ValueError where the own numbers cannot be read.
    """
    name = device.lower()
    if name in _MEMORY:
        bandwidth, memory = _MEMORY[name]
        sheet = name.upper().replace("-", " ")
        bf16, fp32 = peak_tflops(sheet, "bfloat16"), peak_tflops(sheet, "float32")
        assert bf16 is not None and fp32 is not None  # every GPU of the table has its peaks
        return Gpu(name, bf16, fp32, bandwidth, memory)
    if not name.startswith("gpu:"):
        return None
    try:
        tflops, bandwidth_gbs, gib = (float(x) for x in name.removeprefix("gpu:").split(":"))
        if min(tflops, bandwidth_gbs, gib) <= 0:
            raise ValueError
    except ValueError:
        raise ValueError(
            f"{device!r}: a GPU of one's own is gpu:TFLOPS:GB_PER_S:GIB, such as gpu:400:2000:64; "
            f"known ones are {', '.join(GPUS)}."
        ) from None
    return Gpu(name, tflops, tflops, bandwidth_gbs, gib)


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
        from kernels.model.presets import resolve_config

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
    bench = Batch(rows, PrefixOrder.of(rows))
    more = OtherBatches.of(plan, others)
    shape = Shape.of(plan.model)
    budget = int((plan.memory_budget_gib or gpu.memory_gib) * 2**30)
    memory = _memory(bench, plan, budget, longest_row)
    points = []
    for cap in candidate_caps(bench, plan, longest_row, memory.largest):
        one = counted(bench, plan, cap)
        if plan.prompts_per_step and not one.refused:
            one = too_long(cap, longest_row) or one
        one = more.counted(one)
        if not one.refused:
            one = replace(
                one,
                fits=memory.fits(cap),
                memory_bytes=memory.predict(cap),
                memory_kind="estimated",
            )
            if one.fits:
                one = _tree_timed(one, bench, gpu, shape, plan)
                one = _over_batches(one, more, gpu, shape)
        points.append(one)
    flat = _flat(bench, plan, gpu, shape, points)
    return SweepResult(
        points=tuple(points),
        baselines={"flat": flat, "padded": None},
        pick=recommend(points, {"flat": flat}, budget),
        holdout_error=None,
        model=f"{plan.model}: {shape.parameters:,} parameters, {plan.dtype}",
        machine=f"{gpu.name} (not measured)",
        original_tokens=rows.n_tokens,
        longest_row=max(bench.rows.longest, longest_row),
        budget_bytes=budget,
        memory_note="peak of Espalier's own step, traced without a GPU",
        notes=(
            *more.note(rows),
            "Times are estimated from FLOPs and bandwidth at 25 % to 55 % of the peak: run the "
            "same command on the GPU to measure.",
        ),
        finished=True,
        n_batches=more.total,
        measured_batch=more.measured_name(rows),
    )


def _memory(bench: Batch, plan: TuningPlan, budget: int, longest_row: int) -> MemoryFit:
    """Traced at two caps; peak memory grows with tokens in nearly straight pieces."""
    from kernels.memory.peak import estimate_memory

    low = aligned(max(bench.rows.longest, longest_row, 1), plan.alignment)
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


def _tree_timed(
    one: Candidate, bench: Batch, gpu: Gpu, shape: Shape, plan: TuningPlan
) -> Candidate:
    cap, tokens = one.max_tokens_per_mb, bench.rows.n_tokens
    area = bench.simulation(plan, cap).tree_area // plan.dp_size
    predicted = bench.simulation(plan, cap).tree_tokens
    return _timed(one, gpu, shape, plan, one.paid_tokens or 0, predicted, area, tokens)


def _over_batches(one: Candidate, more: OtherBatches, gpu: Gpu, shape: Shape) -> Candidate:
    """The mean and the worst step of all batches, where there are several."""
    cap, plan = one.max_tokens_per_mb, more.plan
    timed = [one] + [
        _tree_timed(counted(bench, plan, cap), bench, gpu, shape, plan) for bench in more.benches
    ]
    seconds = [each.step_s or 0.0 for each in timed]
    if len(seconds) == 1:
        return one
    return replace(
        one, mean_predicted_s=sum(seconds) / len(seconds), worst_predicted_s=max(seconds)
    )


def _timed(
    one: Candidate,
    gpu: Gpu,
    shape: Shape,
    plan: TuningPlan,
    padded: int,
    predicted: int,
    area: int,
    original: int,
) -> Candidate:
    ranks = plan.dp_size
    low, middle, high = step_seconds(gpu, shape, plan, padded // ranks, predicted // ranks, area)
    return replace(
        one,
        step_s=middle,
        step_kind="estimated",
        low_s=low,
        high_s=high,
        tokens_per_s=original / middle,
        message=f"roofline of {gpu.name}: nothing was measured on it",
    )


def _flat(
    bench: Batch, plan: TuningPlan, gpu: Gpu, shape: Shape, points: list[Candidate]
) -> Candidate | None:
    """Flat micro-batches at the first candidate that AReaL takes."""
    for one in points:
        if one.refused or not one.fits:
            continue
        simulation = bench.simulation(plan, one.max_tokens_per_mb)
        paid = simulation.comparison.flat
        if paid is None:
            return None
        area = simulation.flat_area // plan.dp_size
        tokens = bench.rows.n_tokens
        blank = Candidate(one.max_tokens_per_mb, paid_tokens=paid, padded_token_ratio=paid / tokens)
        return _timed(blank, gpu, shape, plan, paid, tokens, area, tokens)
    return None
