"""TreeContext: what a Hugging Face model's forward takes so that its attention follows a tree.

Notable:
- one attention function, ``espalier_tree``, is added to transformers' registry; the tree travels
  to every layer as a keyword, position ids are depths, and no N x N mask is ever made (a name that
  transformers' mask registry lacks gets none)
- every forward counts the layers that attended through the tree: a layer that did not is an error,
  not a wrong number
- a training forward that draws a random number is an error too, whatever draws it: rows that share
  a prefix would share the draw
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from kernels.attention import TreeMask, tree_attention
from kernels.model.refusals import UnsupportedModel, check_config, check_layers

ATTENTION = "espalier_tree"

# keywords by which models hand their attention something that a tree of prefixes does not do
_ATTENTION_KEYWORDS = {
    "sliding_window": "a sliding window",
    "softcap": "a soft cap on scores",
    "s_aux": "attention sinks",
    "position_bias": "a bias on scores",
    "head_mask": "a head mask",
    "indices": "a selection of keys",
}


class TreeContext:
    """The keyword ``espalier_tree`` of a model's forward; see ``use_trees``.

    mask:     who sees whom among the N packed tokens
    backend:  how to attend, as in ``tree_attention``
    attended: the layers that have, in the forward under way or the last one

    No dataclass: FSDP copies those field by field before every layer, and with them what each
    layer notes and the mask's tiles, which are made once a tree.
    """

    def __init__(self, mask: TreeMask, backend: str = "auto") -> None:
        self.mask = mask
        self.backend = backend
        self.attended: set[int] = set()
        self._random_state: Tensor | None = None

    def to(self, device: torch.device | str, non_blocking: bool = False) -> TreeContext:
        """Itself where its mask is on ``device``, else one that is."""
        if self.mask.device == torch.device(device):
            return self
        return TreeContext(TreeMask.from_subtree_end(self.mask.on_host, device), self.backend)


def use_trees(lm: PreTrainedModel) -> PreTrainedModel:
    """Make a causal LM attend through the ``TreeContext`` that its forward is then handed.

    ``lm(input_ids, position_ids=depths, espalier_tree=context, use_cache=False)``, each tensor
    ``(1, N)``. Returns ``lm`` itself. Raises UnsupportedModel, naming the field or the layer.
    """
    check_config(lm.config)
    check_layers(lm)
    lm.set_attn_implementation(ATTENTION)
    lm.base_model.register_forward_pre_hook(_begin, with_kwargs=True)
    lm.base_model.register_forward_hook(_check_forward, with_kwargs=True)
    return lm


def _begin(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    tree = kwargs.get("espalier_tree")
    if tree is not None:
        tree.attended.clear()
        if not torch.compiler.is_compiling():
            tree._random_state = _random_state(tree) if model.training else None


def _check_forward(
    model: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> None:
    tree = kwargs.get("espalier_tree")
    if tree is None:
        return
    n_layers = model.config.num_hidden_layers
    missed = [layer for layer in range(n_layers) if layer not in tree.attended]
    if missed:
        raise UnsupportedModel(
            f"{model.config.model_type}: layer {missed[0]} did not attend through the tree "
            f"({len(missed)} of {n_layers} layers did not)"
        )
    if torch.compiler.is_compiling() or tree._random_state is None:
        return
    if not torch.equal(tree._random_state, _random_state(tree)):
        raise UnsupportedModel(
            f"{model.config.model_type}: its forward draws random numbers in training (a dropout, "
            "a jitter, or sampled routing); rows that share a prefix would share the draw"
        )


def _random_state(tree: TreeContext) -> Tensor:
    device = tree.mask.device
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()


def _tree_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    espalier_tree: TreeContext | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers' attention call: q ``(B, Hq, N, D)``, k, v ``(B, Hkv, N, D)``.

    Returns ``(B, N, Hq, D)`` and no attention weights.
    """
    layer = int(getattr(module, "layer_idx", -1))

    def refuse(why: str) -> None:
        raise UnsupportedModel(f"layer {layer} ({type(module).__name__}) {why}")

    if espalier_tree is None:
        refuse("was not handed the tree: its model drops unknown keywords")
    assert espalier_tree is not None
    if attention_mask is not None:
        refuse("was handed a mask of its own; a tree is its only mask")
    if dropout > 0.0:
        refuse(
            f"drops {dropout:g} of its attention weights in training: rows that share a "
            "prefix would share the draw; set its attention dropout to 0"
        )
    for keyword, what in _ATTENTION_KEYWORDS.items():
        if kwargs.get(keyword) is not None:
            refuse(f"asks for {what}, which tree attention does not have")
    if query.shape[-1] != value.shape[-1]:
        refuse(
            f"has keys of size {query.shape[-1]} and values of size {value.shape[-1]}; "
            "the kernels need one size"
        )
    espalier_tree.attended.add(layer)
    out = tree_attention(
        query, key, value, espalier_tree.mask, scale=scaling, backend=espalier_tree.backend
    )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, _tree_attention_forward)
