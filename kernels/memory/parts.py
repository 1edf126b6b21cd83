"""From traces of few layers to the phases of a whole step, on one GPU or divided over ranks.

Notable:
- a phase's peak is affine in layers that are alike: two traces give the model's
- divided state follows from the number of parameters. FSDP2's buffers follow its source (torch
  2.13, ``torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py``): the root stays gathered; a
  layer is gathered while it runs, and the next one's all-gather has begun; a layer's gradients
  are reduced in fp32 when it ends, from a buffer that lives until the next layer ends
- ours wraps every layer, an embedding that is a weight of its own, and the rest; AReaL's FSDP and
  Archon are taken to do so too
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from kernels.memory.live import KINDS, PERSISTENT, PhasePeak
from kernels.memory.trace import (
    EMBEDDING_BACKWARD,
    FIRST_BACKWARD,
    FIRST_FORWARD,
    HEAD_BACKWARD,
    HEAD_FORWARD,
    LAST_BACKWARD,
    LAST_FORWARD,
    OPTIMIZER,
    Trace,
    TraceOptions,
)

FIRST, LATER = "the first micro-batch", "a later micro-batch"
GATHERED = "gathered"

_REDUCED_BYTES = 4  # gradients are reduced in fp32

Parts = dict[str, int]


@dataclass(frozen=True)
class Layers:
    """Traces of ``traced`` layers each, and the layers of the model that they stand for."""

    traces: Sequence[Trace]
    traced: Sequence[int]
    n_layers: int

    def extrapolated(self, peaks: Sequence[Mapping[str, int]]) -> Parts:
        """Bytes by kind at ``n_layers``, from the same peak of every trace."""
        if len(peaks) == 1:
            return dict(peaks[0])
        (low, high), (a, b) = self.traced, peaks
        return {
            kind: b[kind] + (b[kind] - a[kind]) * (self.n_layers - high) // (high - low)
            for kind in KINDS
        }

    @property
    def elements(self) -> int:
        """Parameters of the model."""
        one = self.traces[-1]
        return one.layer_elements * self.n_layers + one.embedding_elements + one.other_elements


def whole_step(layers: Layers) -> dict[str, Parts]:
    """Every phase of both micro-batches and the optimizer, as traced."""
    phases: dict[str, Parts] = {}
    for name, peaks in (
        (FIRST, [t.first for t in layers.traces]),
        (LATER, [t.later for t in layers.traces]),
    ):
        for phase in peaks[-1]:
            parts = layers.extrapolated([p[phase].whole for p in peaks])
            phases[f"{phase} in {name}"] = parts
    steps = [t.optimizer for t in layers.traces if t.optimizer is not None]
    phases[OPTIMIZER] = layers.extrapolated([step.whole for step in steps])
    return phases


def divided_step(layers: Layers, options: TraceOptions, dp_size: int) -> dict[str, Parts]:
    """Every phase with state divided over ``dp_size`` ranks; what passes is as traced."""
    megatron = options.target != "espalier" and options.engine == "megatron"
    state = _megatron_state if megatron else _fsdp_state
    parameters, gradients, optimizer = state(layers.elements, options, dp_size)
    phases: dict[str, Parts] = {}
    for name in (FIRST, LATER):
        for phase in layers.traces[-1].first:
            peaks: list[PhasePeak] = [t.first[phase] for t in layers.traces]
            parts = layers.extrapolated([peak.passing for peak in peaks])
            reduced = megatron or name == LATER or phase in (FIRST_BACKWARD, EMBEDDING_BACKWARD)
            parts |= dict.fromkeys(PERSISTENT, 0)
            parts |= {
                "parameters": parameters,
                "gradients": gradients if reduced else 0,
                "optimizer": optimizer,
                GATHERED: 0 if megatron else _gathered(phase, layers.traces[-1], options, dp_size),
            }
            phases[f"{phase} in {name}"] = parts
    phases[OPTIMIZER] = dict.fromkeys((*KINDS, GATHERED), 0) | {
        "parameters": parameters,
        "gradients": gradients,
        "optimizer": optimizer,
    }
    return phases


def _fsdp_state(elements: int, options: TraceOptions, dp_size: int) -> tuple[int, int, int]:
    """Parameters and their gradients in the optimizer's dtype, and two moments, all divided."""
    one = -(-elements // dp_size) * _width(options.optimizer_dtype)
    return one, one, 2 * one


def _megatron_state(elements: int, options: TraceOptions, dp_size: int) -> tuple[int, int, int]:
    """Parameters, fp32 gradients; masters and two moments divided (its distributed optimizer)."""
    shard = -(-elements // dp_size)
    masters = 3 * shard * _width(options.optimizer_dtype)
    return elements * _width(options.dtype), elements * _REDUCED_BYTES, masters


def _gathered(phase: str, trace: Trace, options: TraceOptions, dp_size: int) -> int:
    """FSDP2's gathered parameters, undivided gradients and reduction buffers in a phase."""
    width = _width(options.dtype)
    layer, embedding, root = (
        trace.layer_elements, trace.embedding_elements, trace.other_elements
    )  # fmt: skip
    coming = layer if dp_size > 1 else 0  # the all-gather under way, or just copied from
    reducing = layer * _REDUCED_BYTES
    if phase in (FIRST_FORWARD, LAST_FORWARD):
        return (root + layer + coming) * width
    if phase in (HEAD_FORWARD, HEAD_BACKWARD):
        return (root + coming) * width
    # The gradient of a tied head waits for the embedding's: it is among what was traced.
    head_gradient = root if embedding else 0
    if phase in (LAST_BACKWARD, FIRST_BACKWARD):
        return (root + head_gradient + 2 * layer + coming) * width + reducing
    if phase == EMBEDDING_BACKWARD and embedding:
        in_backward = 2 * embedding * width + max(reducing, embedding * _REDUCED_BYTES)
        return 2 * root * width + max(in_backward, root * _REDUCED_BYTES)
    if phase == EMBEDDING_BACKWARD:
        # Two of its gradients were traced; one remains beside the reduction's buffer.
        return root * width + root * max(_REDUCED_BYTES - width, 0)
    return 0


def _width(dtype: str) -> int:
    return int(getattr(torch, dtype).itemsize)
