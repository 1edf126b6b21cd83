"""Models that a tree would make silently wrong, refused by the field or the layer, and why.

Notable:
- a config is read before anything is built; a built model's modules are read after
- a model's way from hidden states to logits is tried, on two tokens and without its layers: what
  it does beside its head (a scale, a cap, another layer) is seen, whatever its config calls it
- what none of this shows is caught at run time: keywords in the attention call, layers that did not
  attend, and random numbers drawn on the way (all in ``context.py``)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

_RECURRENT = re.compile(
    r"Mamba|DeltaNet|LinearAttention|Rwkv|RWKV|Recurrent|Retention|ShortConv|SSM"
)
_RANDOM = re.compile(r"drop|jitter|noise")
_OTHER_HEADS = re.compile(r"^(classifier|summary|seq_classif)")  # no causal LM has these
_SCORE_CHANGES = (
    "attn_logit_softcapping",
    "attention_chunk_size",
    "alibi",
    "attn_temperature_tuning",  # by the place in the packed order, not by the depth
    "index_topk",  # keys are chosen by scores of their own
)
_LOGIT_CHANGES = (
    "final_logit_softcapping",
    "logits_soft_cap",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "output_multiplier",
)


_ONE_DRAW = "rows that share a prefix would share one draw of it; set it to 0"


class UnsupportedModel(ValueError):
    """A tree would make this model silently wrong: which field or layer, and why."""


def check_config(config: PreTrainedConfig) -> None:
    """Raise UnsupportedModel, naming the field, where a tree would be silently wrong."""
    name = getattr(config, "model_type", type(config).__name__)
    values = config.to_dict()

    def refuse(what: str, why: str) -> None:
        raise UnsupportedModel(f"{name}: {what}; {why}")

    for tower in ("vision_config", "audio_config", "speech_config"):
        if getattr(config, tower, None) is not None:
            refuse(
                f"it has a {tower.removesuffix('_config')} tower ({tower})",
                "media tokens and their positions do not follow a tree of token prefixes",
            )
    if getattr(config, "is_encoder_decoder", False):
        refuse("it is an encoder-decoder", "only causal language models have prefixes to share")
    if getattr(config, "is_causal", True) is False or values.get("use_bidirectional_attention"):
        refuse("its attention is bidirectional", "a token would see its siblings' continuations")
    layer_types = getattr(config, "layer_types", None)
    for layer, kind in enumerate(layer_types or ()):
        if kind != "full_attention":
            refuse(
                f"layer {layer} is {kind} (layer_types)",
                "its state or window runs along the packed order, across sibling branches; only "
                "full attention can follow a tree",
            )
    if layer_types is None and (window := getattr(config, "sliding_window", None)) is not None:
        refuse(
            f"every layer has a sliding window of {window} tokens (sliding_window)",
            "the window would be counted in packed positions, not along a row",
        )
    for path, value in _random_fields(values):
        refuse(f"{path} is {value:g}", _ONE_DRAW)
    if values.get("output_router_logits"):
        refuse(
            "output_router_logits is set",
            "its load-balancing loss would count a shared token once, not once a row",
        )
    if config.output_attentions:
        refuse("output_attentions is set", "the kernels never form attention weights")
    for change in _SCORE_CHANGES:
        if values.get(change):
            refuse(f"{change} is {values[change]}", "the tree kernels do not change scores so")
    for change in _LOGIT_CHANGES:
        if values.get(change) not in (None, False, 1, 1.0):
            refuse(f"{change} is {values[change]}", "log-probabilities come from the plain head")
    key_dim = (values.get("qk_nope_head_dim") or 0) + (values.get("qk_rope_head_dim") or 0)
    if key_dim and values.get("v_head_dim") != key_dim:
        refuse(
            f"its latent attention has keys of {key_dim} and values of {values.get('v_head_dim')} "
            "(v_head_dim)",
            "the kernels need one head size",
        )
    rope = getattr(config, "rope_parameters", None) or {}
    # one set of parameters, or one for each type of layer
    for parameters in [rope, *(value for value in rope.values() if isinstance(value, dict))]:
        if (kind := parameters.get("rope_type")) in ("dynamic", "longrope"):
            refuse(
                f"its rotary positions are {kind!r} (rope_parameters)",
                "their frequencies depend on the longest row of the whole micro-batch",
            )
        if parameters.get("mrope_section") is not None:
            refuse("its rotary positions are multimodal (mrope_section)", "a token has one depth")


def check_layers(model: PreTrainedModel) -> None:
    """Raise UnsupportedModel, naming the layer, where a built model mixes tokens in another way."""
    name = model.config.model_type
    if not model._supports_attention_backend:
        raise UnsupportedModel(
            f"{name}: {type(model).__name__} does not call transformers' attention registry, so "
            "its attention cannot be replaced"
        )
    for path, module in model.named_modules():
        kind = type(module).__name__
        if isinstance(module, (nn.Conv1d, nn.RNNBase)) or _RECURRENT.search(kind):
            raise UnsupportedModel(
                f"{name}: {path} ({kind}) carries a state along the packed order, across sibling "
                "branches; only full attention can follow a tree"
            )
        if getattr(module, "is_causal", True) is False:
            raise UnsupportedModel(
                f"{name}: the attention of {path} ({kind}) is bidirectional; a token would see its "
                "siblings' continuations"
            )
        if isinstance(module, nn.modules.batchnorm._NormBase):
            raise UnsupportedModel(
                f"{name}: {path} ({kind}) takes statistics over all packed tokens, where a shared "
                "one counts once"
            )
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0.0:
            raise UnsupportedModel(f"{name}: {path} ({kind}) drops {module.p:g}; {_ONE_DRAW}")
        for field, value in _random_fields(vars(module)):
            raise UnsupportedModel(f"{name}: {field} of {path} ({kind}) is {value:g}; {_ONE_DRAW}")
    for path, _ in model.named_parameters():
        if path.endswith("sinks"):
            raise UnsupportedModel(f"{name}: {path} holds attention sinks, which the kernels lack")
    _check_logits(model, output_head(model))


class _HiddenStates(tuple[Any, ...]):
    """A base model's output with nothing but last hidden states, by place and by name."""

    def __new__(cls, hidden: torch.Tensor) -> _HiddenStates:
        return super().__new__(cls, (hidden,))

    @property
    def last_hidden_state(self) -> torch.Tensor:
        hidden: torch.Tensor = self[0]
        return hidden

    def __getattr__(self, name: str) -> None:
        return None


def _check_logits(model: PreTrainedModel, head: nn.Linear) -> None:
    """Raise UnsupportedModel where logits are not what the head makes of the last hidden states.

    The layers are left out: the model's own forward gets hidden states made up here. Parameters
    without values (meta, fake) or spread over ranks cannot be tried.
    """
    weight = head.weight
    if weight.is_meta or type(weight.data) is not torch.Tensor:
        return
    place = {"device": weight.device, "dtype": weight.dtype}
    hidden = torch.linspace(-1, 1, 2 * head.in_features, **place).view(1, 2, -1)  # type: ignore[call-overload]
    base, called = model.base_model, []

    def made_up(*_: Any, **__: Any) -> _HiddenStates:
        called.append(True)
        return _HiddenStates(hidden)

    ids = torch.zeros((1, 2), dtype=torch.int64, device=weight.device)
    try:
        with patch.object(base, "forward", made_up), torch.no_grad():
            logits = model(input_ids=ids).logits
            expected = nn.functional.linear(hidden, weight, head.bias)
        same = logits.shape == expected.shape and torch.allclose(
            logits.float(), expected.float(), rtol=1e-2, atol=1e-2 * float(expected.abs().max())
        )
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, IndexError):
        same = False
    if called and not same:  # OPT goes round its base model: nothing is learnt of it
        raise UnsupportedModel(
            f"{model.config.model_type}: its logits are not what its head makes of the last hidden "
            "states; log-probabilities come from the plain head"
        )


def _random_fields(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    """Every dropout and jitter that is not 0, in the fields of a config or a module."""
    for name, value in values.items():
        if isinstance(value, Mapping) and not name.startswith("_"):
            yield from _random_fields(value, f"{above}{name}.")
        elif isinstance(value, int | float) and value > 0 and _is_random(str(name)):
            yield f"{above}{name}", value


def _is_random(name: str) -> bool:
    return bool(_RANDOM.search(name)) and not _OTHER_HEADS.search(name)


def output_head(model: PreTrainedModel) -> nn.Linear:
    """The layer from hidden states to logits; raises UnsupportedModel where it is not linear."""
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    more = {name for name, _ in head.named_parameters()} - {"weight", "bias"} if head else set()
    if not isinstance(head, nn.Linear) or more:
        raise UnsupportedModel(
            f"{model.config.model_type}: its head is not one linear layer from hidden states to "
            f"the vocabulary but {' with '.join([type(head).__name__, *sorted(more)])}"
        )
    return head
