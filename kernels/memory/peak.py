"""Peak memory of a training step without a GPU: traced with fake tensors, then put together.

Notable:
- up to four layers a model is traced whole; of a deeper one two and four layers are, and each
  phase is extrapolated, for it is affine in the number of layers where these are alike
- one GPU of ours is traced to the end: parameters, gradients, masters and AdamW's states too. With
  FSDP2, and for AReaL, what lives from step to step follows from the number of parameters, and
  FSDP2's buffers from its source (torch 2.13, ``torch/distributed/fsdp/_fully_shard``)
- all figures are allocated bytes: fragmentation of the allocator's blocks comes on top
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernels.memory.parts import FIRST, GATHERED, LATER, Layers, divided_step, whole_step
from kernels.memory.stand_ins import BLOCK_MASK_TRANSIENT
from kernels.memory.trace import Device, Engine, Target, TracedModel, TraceOptions, trace_step
from kernels.model import CHUNK_SIZE

_GIB = 2**30
_CONTEXT = _GIB // 2  # the CUDA context and the libraries' kernels
_WORKSPACE = 32 * 2**20  # cuBLAS (Hopper's default, the largest)
_ONEDNN = 32 * 2**20  # half precision on a CPU: 32 … 38 MiB measured, at 1,024 … 6,144 tokens alike
_WHOLE = 4  # layers up to which a model is traced whole
_FEW = (2, 4)  # layers traced of a deeper one

GPU_MEMORY: dict[str, int] = {
    name: int(total * _GIB) - _CONTEXT
    for name, total in {
        "A100 40GB": 39.4,
        "A100 80GB": 79.1,
        "H100 80GB": 79.1,
        "H200 141GB": 139.8,
        "B200 180GB": 178.3,
        "L40S 48GB": 44.4,
        "RTX 4090 24GB": 23.6,
    }.items()
}
"""Usable bytes: what PyTorch reports as the device's total, less half a GiB for the context."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Estimated bytes of one rank.

    parts:      bytes of each kind at the peak; they sum to ``peak_bytes``. "gathered" holds
                FSDP2's gathered layers and reduction buffers
    peak_at:    the phase of the peak
    first_micro_batch_bytes, later_micro_batch_bytes: their peaks (gradients exist from the second)
    extrapolated: whether some layers were not traced
    phases:     bytes of each kind in every phase
    sentences:  what the figure says and rests on, for people
    """

    parts: dict[str, int]
    peak_bytes: int
    peak_at: str
    first_micro_batch_bytes: int
    later_micro_batch_bytes: int
    extrapolated: bool
    phases: Mapping[str, Mapping[str, int]]
    sentences: tuple[str, ...]

    @property
    def largest_part(self) -> str:
        """The largest part at the peak, in words."""
        largest = max(self.parts, key=lambda kind: self.parts[kind])
        return f"{_NAMES.get(largest, largest)}, {_gib(self.parts[largest])}"


def estimate_memory(
    model_name: str,
    n_tokens: int,
    *,
    dtype: str = "bfloat16",
    optimizer_dtype: str = "float32",
    gradient_checkpointing: bool = False,
    head_chunk: int = CHUNK_SIZE,
    dp_size: int = 1,
    vocab_at_least: int = 0,
    target: Target = "espalier",
    engine: Engine = "fsdp",
    device: Device = "cuda",
) -> MemoryEstimate:
    """Peak of a step whose micro-batches have ``n_tokens`` packed tokens, padding included.

    dtype, optimizer_dtype: "float32", "bfloat16" or "float16", of the computation and of AdamW
    head_chunk: parents whose logits exist at once; AReaL has all logits at once
    dp_size:    ranks over which FSDP2 (or Megatron's distributed optimizer) divides state
    target:     whose step it is; AReaL's with ``engine``
    device:     "cuda": Triton attention and fused AdamW; "cpu": cascade and AdamW's loop
    Raises ModelNotFound, UnsupportedModel, or ValueError for sizes below their least.
    """
    for name, value, least in (
        ("n_tokens", n_tokens, 2), ("head_chunk", head_chunk, 1), ("dp_size", dp_size, 1)
    ):  # fmt: skip
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
    whole = target == "espalier" and dp_size == 1
    options = TraceOptions(
        dtype, optimizer_dtype, gradient_checkpointing, head_chunk, device, target, engine, whole
    )
    model = TracedModel.of(model_name, vocab_at_least)
    n_layers = int(model.config.num_hidden_layers)
    traced = (n_layers,) if n_layers <= _WHOLE else _FEW
    traces = [trace_step(model, n, n_tokens, options) for n in traced]
    layers = Layers(traces, traced, n_layers)
    phases = whole_step(layers) if whole else divided_step(layers, options, dp_size)
    if device == "cuda":
        for parts in phases.values():
            parts["buffers"] += _WORKSPACE
    elif dtype != "float32":  # oneDNN keeps its compiled primitives and their scratch memory
        for parts in phases.values():
            parts["buffers"] += _ONEDNN
    totals = {name: sum(parts.values()) for name, parts in phases.items()}
    peak_at = max(totals, key=lambda name: totals[name])
    estimate = MemoryEstimate(
        parts={kind: size for kind, size in phases[peak_at].items() if size},
        peak_bytes=totals[peak_at],
        peak_at=peak_at,
        first_micro_batch_bytes=max(v for name, v in totals.items() if name.endswith(FIRST)),
        later_micro_batch_bytes=max(v for name, v in totals.items() if name.endswith(LATER)),
        extrapolated=len(traced) > 1,
        phases=phases,
        sentences=(),
    )
    return replace(estimate, sentences=_sentences(estimate, n_tokens, layers, options, dp_size))


def _sentences(
    estimate: MemoryEstimate,
    n_tokens: int,
    layers: Layers,
    options: TraceOptions,
    dp_size: int,
) -> tuple[str, ...]:
    said = [
        f"Estimated peak {_gib(estimate.peak_bytes)}, at {estimate.peak_at}; the first micro-batch "
        f"peaks at {_gib(estimate.first_micro_batch_bytes)}, later ones, which find gradients "
        f"there, at {_gib(estimate.later_micro_batch_bytes)}.",
        f"The largest part: {estimate.largest_part}.",
    ]
    if estimate.extrapolated:
        few = " and ".join(map(str, layers.traced))
        said.append(
            f"{few} of {layers.n_layers} layers were traced with fake tensors; the rest is "
            "extrapolated, as memory is affine in layers that are alike."
        )
    if dp_size > 1:
        said.append(
            f"Parameters, gradients and optimizer state are divided over {dp_size} ranks"
            + (
                " (Megatron: the optimizer's only)."
                if options.target != "espalier" and options.engine == "megatron"
                else "; gathered layers and reduction buffers are counted."
            )
        )
    if options.target == "areal":
        dense = n_tokens * n_tokens
        each = " in every layer" if options.engine == "megatron" else ""
        said.append(
            f"AReaL's dense mask takes {_gib(dense)} and create_block_mask another "
            f"{_gib(BLOCK_MASK_TRANSIENT * dense)} for a moment{each} (measured on a CPU, not on "
            "a GPU); its logits and two gradients of them exist whole."
        )
        if options.engine == "fsdp" and not options.gradient_checkpointing:
            said.append(
                "The key-value cache that AReaL's FSDP engine leaves on is counted: the backward "
                "pass keeps these keys and values anyway, so in training it adds nothing."
            )
    if options.device == "cpu":
        said.append("Attention's temporaries are those of one row without branches, the most.")
    else:
        said.append("Fragmentation of the allocator's blocks is not counted: leave it some room.")
    return tuple(said)


_NAMES = {
    GATHERED: "gathered layers and reduction buffers",
    "masks": "AReaL's dense mask and create_block_mask",
    "logits": "the head and its logits",
    "optimizer": "the optimizer's state",
    "temporaries": "temporaries of the backward pass or the optimizer",
}


def _gib(size: int) -> str:
    return f"{size / _GIB:.2f} GiB"
