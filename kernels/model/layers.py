"""The parts of a causal LM that are traced, divided or gathered one by one."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel

from kernels.model.refusals import UnsupportedModel, output_head


def decoder_layers(lm: PreTrainedModel) -> nn.ModuleList:
    """The layers, in order; raises UnsupportedModel where they are not one list of modules."""
    n_layers = lm.config.num_hidden_layers
    for module in lm.base_model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == n_layers:
            return module
    raise UnsupportedModel(f"{lm.config.model_type}: its layers are not one list of modules")


def own_embedding(lm: PreTrainedModel) -> nn.Module | None:
    """The token embedding, or None where the head is tied to it."""
    embedding: nn.Module = lm.get_input_embeddings()
    tied = embedding.get_parameter("weight") is output_head(lm).weight
    return None if tied else embedding
