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
from dataclasses import dataclass

from kernels.memory.parts import GATHERED, Layers, divided_step, whole_step
from kernels.memory.trace import Device, Engine, Target, TracedModel, TraceOptions, trace_step
from kernels.model import CHUNK_SIZE

_GIB = 2**30
_WORKSPACE = 32 * 2**20  # cuBLAS (Hopper's default, the largest)
_ONEDNN = 32 * 2**20  # half precision on a CPU: 32 … 38 MiB measured, at 1,024 … 6,144 tokens alike
_WHOLE = 4  # layers up to which a model is traced whole
_FEW = (2, 4)  # layers traced of a deeper one


@dataclass(frozen=True)
class MemoryEstimate:
    """Estimated bytes of one rank.

    parts:      bytes of each kind at the peak; they sum to ``peak_bytes``. "gathered" holds
                FSDP2's gathered layers and reduction buffers
    peak_at:    the phase of the peak
    phases:     bytes of each kind in every phase
    """

    parts: dict[str, int]
    peak_bytes: int
    peak_at: str
    phases: Mapping[str, Mapping[str, int]]

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
    return MemoryEstimate(
        parts={kind: size for kind, size in phases[peak_at].items() if size},
        peak_bytes=totals[peak_at],
        peak_at=peak_at,
        phases=phases,
    )


_NAMES = {
    GATHERED: "gathered layers and reduction buffers",
    "masks": "AReaL's dense mask and create_block_mask",
    "logits": "the head and its logits",
    "optimizer": "the optimizer's state",
    "temporaries": "temporaries of the backward pass or the optimizer",
}


def _gib(size: int) -> str:
    return f"{size / _GIB:.2f} GiB"
