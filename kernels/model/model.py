"""A Hugging Face causal LM whose attention follows a tree of prefixes.

Notable:
- one attention function, ``espalier_tree``, is added to transformers' registry; the tree travels
  to every layer as a keyword, position ids are depths, and no N x N mask is ever made (a name that
  transformers' mask registry lacks gets none)
- every forward counts the layers that attended through the tree: a layer that did not is an error,
  not a wrong number
- what a tree would make silently wrong is refused by the field or the layer's name, and why
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from kernels.attention.mask import TreeMask
from kernels.attention.registry import tree_attention
from kernels.model.logprobs import PackedLogprobs, Transitions, head_logprobs
from kernels.model.presets import resolve_config
from kernels.model.refusals import UnsupportedModel, check_config, check_layers, output_head

ATTENTION = "espalier_tree"
DType = Literal["float32", "bfloat16", "float16"]

# keywords by which models hand their attention something that a tree of prefixes does not do
_ATTENTION_KEYWORDS = {
    "sliding_window": "a sliding window",
    "softcap": "a soft cap on scores",
    "s_aux": "attention sinks",
    "position_bias": "a bias on scores",
    "head_mask": "a head mask",
    "indices": "a selection of keys",
}


@dataclass
class _Tree:
    """What every layer needs to attend, and which layers have."""

    mask: TreeMask
    backend: str
    attended: set[int] = field(default_factory=set)


def _tree_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    espalier_tree: _Tree | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention call: q ``(B, Hq, N, D)``, k, v ``(B, Hkv, N, D)``.

    Returns ``(B, N, Hq, D)`` and no attention weights.
    """
    layer = int(getattr(module, "layer_idx", -1))
    where = f"layer {layer} ({type(module).__name__})"
    if espalier_tree is None:
        raise UnsupportedModel(f"{where} was not handed the tree: its model drops unknown keywords")
    if attention_mask is not None:
        raise UnsupportedModel(f"{where} was handed a mask of its own; a tree is its only mask")
    if dropout > 0.0:
        raise UnsupportedModel(
            f"{where} drops {dropout:g} of its attention weights in training: rows that share a "
            "prefix would share the draw; set its attention dropout to 0"
        )
    for keyword, what in _ATTENTION_KEYWORDS.items():
        if kwargs.get(keyword) is not None:
            raise UnsupportedModel(f"{where} asks for {what}, which tree attention does not have")
    if query.shape[-1] != value.shape[-1]:
        raise UnsupportedModel(
            f"{where} has keys of size {query.shape[-1]} and values of size {value.shape[-1]}; "
            "the kernels need one size"
        )
    espalier_tree.attended.add(layer)
    out = tree_attention(
        query, key, value, espalier_tree.mask, scale=scaling, backend=espalier_tree.backend
    )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, _tree_attention_forward)


class TreeLM(nn.Module):
    """A causal LM that reads one packed tree and returns log-probabilities.

    lm:          the Hugging Face model, its attention replaced
    name:        how the model was asked for
    description: name, whence the weights, parameters, dtype, in one line
    """

    def __init__(self, lm: PreTrainedModel, name: str, weights: str) -> None:
        super().__init__()
        check_config(lm.config)
        check_layers(lm)
        self.lm = lm
        self.name = name
        self.weights = weights

    @property
    def config(self) -> PreTrainedConfig:
        return self.lm.config

    @property
    def n_parameters(self) -> int:
        """Parameters, a tied head counted once."""
        return sum(p.numel() for p in self.parameters())

    @property
    def description(self) -> str:
        dtype = str(next(self.parameters()).dtype).removeprefix("torch.")
        return f"{self.name}: {self.n_parameters:,} parameters, {self.weights}, {dtype}"

    def hidden_states(
        self, input_ids: Tensor, position_ids: Tensor, mask: TreeMask, backend: str = "auto"
    ) -> Tensor:
        """Last hidden states ``(N, hidden)`` of one tree; ids and depths int64 ``(N,)``."""
        tree = _Tree(mask, backend)
        out = self.lm.base_model(
            input_ids=input_ids[None],
            position_ids=position_ids[None],
            use_cache=False,
            espalier_tree=tree,
        )
        missed = set(range(self.config.num_hidden_layers)) - tree.attended
        if missed:
            raise UnsupportedModel(
                f"{self.name}: layer {min(missed)} did not attend through the tree "
                f"({len(missed)} of {self.config.num_hidden_layers} layers did not)"
            )
        hidden: Tensor = out.last_hidden_state[0]
        return hidden

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        mask: TreeMask,
        transitions: Transitions,
        backend: str = "auto",
        entropy: bool = False,
    ) -> PackedLogprobs:
        """Log-probabilities of one packed tree; ids and depths int64 ``(N,)``, padding included."""
        hidden = self.hidden_states(input_ids, position_ids, mask, backend)
        head = output_head(self.lm)
        return head_logprobs(hidden, head.weight, transitions, head.bias, entropy)

    @contextmanager
    def plain_attention(self) -> Iterator[PreTrainedModel]:
        """The same weights as transformers runs them, without our attention, for reference."""
        self.lm.set_attn_implementation("sdpa" if self.lm._supports_sdpa else "eager")
        try:
            yield self.lm
        finally:
            self.lm.set_attn_implementation(ATTENTION)


def build_model(
    name: str,
    *,
    vocab_at_least: int = 0,
    dtype: DType = "float32",
    device: str | torch.device = "cpu",
    seed: int = 0,
    gradient_checkpointing: bool = False,
) -> TreeLM:
    """A model with random weights: enough for times, memory and equivalence, not for text.

    name: a preset, a config.json, a folder that holds one, or a Hub id (its config only)
    Raises ModelNotFound or UnsupportedModel.
    """
    config = resolve_config(name, vocab_at_least)
    check_config(config)
    config.use_cache = False
    devices = [torch.device(device)] if torch.device(device).type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices), torch.device(device):
            torch.manual_seed(seed)
            lm = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                config, dtype=getattr(torch, dtype), attn_implementation=ATTENTION
            )
    except ValueError as error:
        raise UnsupportedModel(f"{name}: not a causal language model ({error})") from error
    model = TreeLM(lm, name, f"random weights (seed {seed})")
    if gradient_checkpointing:
        # the newer name; transformers warns about the older one where it has both
        newer = getattr(lm, "activation_checkpointing_enable", None)
        enable = newer or lm.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    return model.train()
