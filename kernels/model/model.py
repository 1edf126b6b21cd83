"""TreeLM: a Hugging Face causal LM that reads one packed tree and gives log-probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from kernels.attention import TreeMask
from kernels.model.context import ATTENTION, TreeContext, use_trees
from kernels.model.logprobs import PackedLogprobs, Transitions, head_logprobs
from kernels.model.presets import resolve_config
from kernels.model.refusals import UnsupportedModel, check_config, output_head

DType = Literal["float32", "bfloat16", "float16"]


class TreeLM(nn.Module):
    """A causal LM that reads one packed tree and returns log-probabilities.

    lm:          the Hugging Face model, its attention replaced
    name:        how the model was asked for
    description: name, whence the weights, parameters, dtype, in one line
    """

    def __init__(self, lm: PreTrainedModel, name: str, weights: str) -> None:
        super().__init__()
        self.lm = use_trees(lm)
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
        out = self.lm.base_model(
            input_ids=input_ids[None],
            position_ids=position_ids[None],
            use_cache=False,
            espalier_tree=TreeContext(mask, backend),
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
    except KeyError as error:  # attention classes of its own, by name, as Falcon has
        raise UnsupportedModel(
            f"{config.model_type}: it has attention layers of its own for each implementation, so "
            "its attention cannot be replaced"
        ) from error
    except ValueError as error:
        raise UnsupportedModel(f"{name}: not a causal language model ({error})") from error
    model = TreeLM(lm, name, f"random weights (seed {seed})")
    if gradient_checkpointing:
        # the newer name; transformers warns about the older one where it has both
        newer = getattr(lm, "activation_checkpointing_enable", None)
        enable = newer or lm.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    return model.train()
