"""One training step with fake tensors: every operator of the real model runs, no memory is used.

Notable:
- the transformers model, the head, the loss and the optimizer are those of ``step.py``; attention
  and AReaL's loss are stand-ins that make and keep what the real ones do (``_memory_stand_ins``)
- for AReaL its dense mask, the transient of ``create_block_mask`` and the key-value cache that its
  FSDP engine leaves on are made too
- phases are named for the first and the last layer: with n layers alike, each is affine in n
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.nn import functional
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from kernels.memory.live import LiveBytes, PhasePeak
from kernels.memory.stand_ins import ATTENTION, ArealLogprobs, StandIn, block_mask_transient
from kernels.model import (
    Inputs,
    MicroBatch,
    StepOptimizer,
    UnsupportedModel,
    adamw,
    check_config,
    decoder_layers,
    head_logprobs,
    output_head,
    own_embedding,
    policy_loss,
    resolve_config,
    row_layout,
)
from packing.rows import Rows

Target = Literal["areal", "areal-espalier", "espalier"]
"""What runs the step: AReaL as it is, AReaL with the plugin of ``kernels.integrations``, or ours.

With the plugin AReaL's engine holds the state, and attention, mask and head are ours.
"""
Engine = Literal["fsdp", "megatron", "archon"]
Device = Literal["cuda", "cpu"]

FIRST_FORWARD, LAST_FORWARD = "forward of the first layer", "forward of the last layer"
HEAD_FORWARD, HEAD_BACKWARD = "forward of the head", "backward of the head"
LAST_BACKWARD, FIRST_BACKWARD = "backward of the last layer", "backward of the first layer"
EMBEDDING_BACKWARD, MASK, OPTIMIZER = "backward of the embedding", "the mask", "the optimizer"

_CUDA_BLOCK = 512  # smallest block of PyTorch's CUDA allocator
_TILE, _AREAL_TILE = 64, 128


@dataclass(frozen=True)
class TraceOptions:
    """dtype, optimizer_dtype: torch names; whole: both micro-batches and the optimizer, or one."""

    dtype: str
    optimizer_dtype: str
    gradient_checkpointing: bool
    head_chunk: int
    device: Device
    target: Target
    engine: Engine
    whole: bool


@dataclass(frozen=True)
class Trace:
    """first, later: peaks by phase of the first and of a later micro-batch; optimizer apart.

    Elements of parameters: of one layer, of an embedding that is a weight of its own, of the rest.
    """

    first: Mapping[str, PhasePeak]
    later: Mapping[str, PhasePeak]
    optimizer: PhasePeak | None
    layer_elements: int
    embedding_elements: int
    other_elements: int


@dataclass(frozen=True)
class TracedModel:
    """A model to trace; equal where every field of the config is."""

    fields: str
    name: str = field(compare=False)
    config: PreTrainedConfig = field(compare=False, repr=False)

    @classmethod
    def of(cls, name: str, vocab_at_least: int = 0) -> TracedModel:
        """Raises ModelNotFound or UnsupportedModel."""
        config = resolve_config(name, vocab_at_least)
        check_config(config)
        return cls(config.to_json_string(use_diff=False), name, config)


@lru_cache(maxsize=64)
def trace_step(model: TracedModel, n_layers: int, n_tokens: int, options: TraceOptions) -> Trace:
    """Peaks of a step of ``n_layers`` of a model over one row of ``n_tokens`` packed tokens.

    Raises UnsupportedModel where the work of a layer depends on the data.
    """
    live = LiveBytes(_CUDA_BLOCK if options.device == "cuda" else 1)
    try:
        with FakeTensorMode(), _fused(options.device == "cuda"):
            return _trace(model, n_layers, n_tokens, options, live)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise UnsupportedModel(
            f"{model.name}: what its layers do depends on the data, so that their memory cannot "
            f"be estimated without running them ({error.func})"
        ) from error


def _trace(
    model: TracedModel, n_layers: int, n_tokens: int, options: TraceOptions, live: LiveBytes
) -> Trace:
    lm = _model(model, n_layers, options)
    layers = decoder_layers(lm)
    live.label(lm.parameters(), "parameters")
    live.label(lm.buffers(), "buffers")
    for parameter in lm.parameters():
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda p: live.label([p.grad], "gradients")
        )
    first: dict[str, PhasePeak] = {}
    later: dict[str, PhasePeak] = {}
    optimizer_peak = None
    with live:
        optimizer = _optimizer(lm, options, live) if options.whole else None
        for parts in (first, later) if options.whole else (first,):
            _micro_batch(lm, layers, n_tokens, options, live)
            parts.update(live.take_peaks())
        if optimizer is not None:
            live.phase = OPTIMIZER
            with live.making("temporaries"):
                optimizer.step()
            live.phase = None
            optimizer_peak = live.take_peaks()[OPTIMIZER]
    elements = [sum(p.numel() for p in layer.parameters()) for layer in layers]
    embedding = own_embedding(lm)
    own = embedding.get_parameter("weight").numel() if embedding is not None else 0
    total = sum(p.numel() for p in lm.parameters())
    return Trace(first, later, optimizer_peak, elements[-1], own, total - own - sum(elements))


def _model(model: TracedModel, n_layers: int, options: TraceOptions) -> PreTrainedModel:
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = n_layers
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = config.layer_types[:n_layers]
    try:
        lm: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, dtype=getattr(torch, options.dtype), attn_implementation=ATTENTION
        )
    except ValueError as error:
        raise UnsupportedModel(f"{model.name}: not a causal language model ({error})") from error
    if options.gradient_checkpointing:
        newer = getattr(lm, "activation_checkpointing_enable", None)
        (newer or lm.gradient_checkpointing_enable)({"use_reentrant": False})
    lm.train()
    return lm


@contextmanager
def _fused(on: bool) -> Iterator[None]:
    """AdamW runs as on a GPU, in one kernel without temporaries, though fakes are on the CPU."""

    def fuse(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            group["fused"] = True

    handle = register_optimizer_step_pre_hook(fuse) if on else None
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


def _optimizer(lm: PreTrainedModel, options: TraceOptions, live: LiveBytes) -> StepOptimizer:
    """An optimizer that has stepped before: its states exist, its gradients are gone."""
    with live.making("optimizer"):
        optimizer = adamw(lm, dtype=getattr(torch, options.optimizer_dtype))
        for parameter in lm.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return optimizer


def _micro_batch(
    lm: PreTrainedModel,
    layers: nn.ModuleList,
    n_tokens: int,
    options: TraceOptions,
    live: LiveBytes,
) -> None:
    areal = options.target == "areal"
    attention = StandIn(
        live,
        cpu=options.device == "cpu",
        areal=areal,
        block_masks=areal and options.engine == "megatron",
    )
    with live.making("buffers"):
        rows = Rows.from_lists([np.zeros(n_tokens, dtype=np.int32)])
        batch = MicroBatch(row_layout(rows, [0]), n_tokens)
        inputs = Inputs.of(batch, torch.device("cpu"), options.head_chunk)
        old, advantages, weights = (torch.empty(n_tokens - 1) for _ in range(3))
    with live.making("masks"):
        live.phase = MASK
        masks = _areal_mask(n_tokens, options) if areal else _interval_mask(n_tokens)
        live.phase = None
    with _layer_phases(layers, live):
        out = lm.base_model(
            input_ids=inputs.input_ids[None],
            position_ids=inputs.position_ids[None],
            use_cache=areal and options.engine == "fsdp" and not options.gradient_checkpointing,
            espalier_memory=attention,
        )
        hidden, live.phase = out.last_hidden_state[0], HEAD_FORWARD
        head = output_head(lm)
        with live.making("logits"):
            if areal:
                logits = functional.linear(hidden, head.weight, head.bias)
                logp = ArealLogprobs.apply(logits)  # type: ignore[no-untyped-call]
                del logits
            else:
                packed = head_logprobs(hidden, head.weight, inputs.transitions, head.bias)
                logp = packed.rows()
                del packed
            del hidden
            loss = policy_loss(logp, old, advantages, weights)
        live.phase, live.backward_kind = HEAD_BACKWARD, "logits"
        live.in_backward = True
        loss.backward()  # type: ignore[no-untyped-call]
        live.phase, live.in_backward = None, False
    del masks, out


@contextmanager
def _layer_phases(layers: nn.ModuleList, live: LiveBytes) -> Iterator[None]:
    """Name the phase as each layer begins, forward and backward; middle layers have no name."""
    last = len(layers) - 1
    forward = {0: FIRST_FORWARD, last: LAST_FORWARD}
    backward = {0: FIRST_BACKWARD, last: LAST_BACKWARD}

    def reach(phase: str | None, _: Tensor) -> None:
        live.phase, live.backward_kind = phase, "temporaries"

    def hook(tensor: Tensor, phase: str | None) -> None:
        tensor.register_hook(partial(reach, phase))  # type: ignore[no-untyped-call]

    def before(number: int, _: nn.Module, args: tuple[Tensor, ...]) -> None:
        if not live.in_backward:
            live.phase = forward.get(number)
            if number == 0:
                hook(args[0], EMBEDDING_BACKWARD)

    def after(number: int, _: nn.Module, args: tuple[Tensor, ...], out: Any) -> None:
        if not live.in_backward:
            first = out[0] if isinstance(out, tuple) else out
            hook(first, backward.get(number))

    handles = []
    for number, layer in enumerate(layers):
        handles.append(layer.register_forward_pre_hook(partial(before, number)))
        handles.append(layer.register_forward_hook(partial(after, number)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _interval_mask(n_tokens: int) -> list[Tensor]:
    """Ours: one int32 a token, and at most two lists of all its tiles."""
    tiles = (-(-n_tokens // _TILE)) ** 2
    return [torch.empty(n_tokens, dtype=torch.int32), torch.empty(2, tiles, dtype=torch.int32)]


def _areal_mask(n_tokens: int, options: TraceOptions) -> list[Tensor]:
    """AReaL's dense mask, which its BlockMask refers to for as long as it lives, and its lists.

    Megatron makes the BlockMask in every layer (see the attention below), the others once here.
    """
    dense = torch.empty(n_tokens, n_tokens, dtype=torch.bool)
    tiles = (-(-n_tokens // _AREAL_TILE)) ** 2
    lists = torch.empty(4, tiles, dtype=torch.int32)
    if options.engine != "megatron":
        block_mask_transient(n_tokens)
    return [dense, lists]
