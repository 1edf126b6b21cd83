"""Puts Espalier behind AReaL's own names, in the modules that use them.

Notable:
- what is replaced, what it is called with and where AReaL calls it are compared with ``_CALLS``
  first: a version of AReaL that differs is refused with a sentence, and nothing is replaced
- AReaL's FSDP engine reaches these names only for trees, and attention is set on the model of an
  engine that trains trees: an engine beside it keeps all of AReaL's own code
- ``attn_impl: espalier_tree`` is accepted where the plugin is on, and only there: a config with it
  stops AReaL at its start where the plugin is not installed
"""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

from kernels.integrations.areal.logprobs import (
    gather_logprobs_entropy,
    gather_row_logprobs,
    gather_vocab_stats,
)
from kernels.integrations.areal.minibatches import keep_groups
from kernels.integrations.areal.model import fuse_head
from kernels.integrations.areal.options import OPTIONS, option
from kernels.integrations.areal.trees import build_packed_tree_batch, build_tree_attn_kwargs
from kernels.model import use_trees
from kernels.model.context import ATTENTION

ENGINE = "areal.engine.fsdp_engine"
ACTOR = "areal.trainer.ppo.actor"
ATTN_IMPL = "areal.engine.fsdp_utils.attn_impl"

# module: name in it, its parameters, the function there that calls it (where that can be seen)
_GATHER = "logits trie input_ids temperature chunk_size tp_group"
_CALLS: dict[str, list[tuple[str, str, str]]] = {
    ENGINE: [
        (
            "build_packed_tree_batch",
            "data mb_spec pad_to_maximum dp_group parallel_size",
            "FSDPEngine._prepare_mb_list",
        ),
        (
            "build_tree_attn_kwargs",
            "trie padded_size device dense_mask",
            "FSDPEngine.forward_backward_batch",
        ),
        ("_gather_packed_tree_logprobs", _GATHER, "FSDPEngine._compute_forward_result"),
        (
            "gather_packed_tree_logprobs_entropy",
            _GATHER,
            "FSDPEngine._compute_logprobs_and_loss",
        ),
        ("gather_packed_tree_vocab_stats", "logits trie", "FSDPEngine._compute_logprobs_and_loss"),
        ("patch_fsdp_for_tree_training", "enable", "FSDPEngine.initialize"),
        ("FSDPEngine._create_device_model", "self", "FSDPEngine.initialize"),
    ],
    ACTOR: [
        (
            "split_padded_tensor_dict_into_mb_list",
            "data mb_spec group",
            "PPOActor._ppo_update",
        ),
        ("batched_call", "fn data unpack", ""),  # AReaL's decorators hide who calls it
    ],
}


class UnknownAReaL(ImportError):
    """This version of AReaL is not one that the plugin knows; the message says what differs."""


def apply() -> None:
    """Patch AReaL in this process by hand. Raises UnknownAReaL."""
    for name in PATCHES:
        patch(importlib.import_module(name))


def patch(module: ModuleType) -> None:
    """Patch one of AReaL's modules, once. Raises UnknownAReaL."""
    if not hasattr(module, "_espalier"):
        PATCHES[module.__name__](module)
        module._espalier = True  # type: ignore[attr-defined]


def patch_engine(engine: ModuleType) -> None:
    """AReaL's FSDP engine trains trees through Espalier. Raises UnknownAReaL."""
    for name in OPTIONS:
        option(name.removeprefix("ESPALIER_AREAL_"))
    check_version(engine)
    create = engine.FSDPEngine._create_device_model

    def create_device_model(self: Any) -> None:
        create(self)
        if self.enable_tree_training:
            _use_trees(self)

    engine.FSDPEngine._create_device_model = create_device_model
    replacements = {
        "build_packed_tree_batch": build_packed_tree_batch,
        "build_tree_attn_kwargs": build_tree_attn_kwargs,
        "_gather_packed_tree_logprobs": gather_row_logprobs,
        "gather_packed_tree_logprobs_entropy": gather_logprobs_entropy,
        "gather_packed_tree_vocab_stats": gather_vocab_stats,
        "patch_fsdp_for_tree_training": lambda enable=True: None,
    }
    vars(engine).update(replacements)
    engine.logging.getLogger("Espalier").info("AReaL's FSDP engine trains trees through Espalier.")


def patch_actor(actor: ModuleType) -> None:
    """AReaL's PPO actor keeps groups together, where that is asked for. Raises UnknownAReaL."""
    if option("MINIBATCHES") == "groups":
        check_version(actor)
        keep_groups(actor)


def patch_attn_impl(attn_impl: ModuleType) -> None:
    """A config may say ``attn_impl: espalier_tree``. Raises UnknownAReaL."""
    known = getattr(attn_impl, "BUILTIN_ATTN_IMPLS", None)
    if not isinstance(known, tuple):
        raise _unknown(f"{ATTN_IMPL}.BUILTIN_ATTN_IMPLS is {type(known).__name__}, not a tuple")
    attn_impl.BUILTIN_ATTN_IMPLS = (*known, ATTENTION)  # type: ignore[attr-defined]


PATCHES = {ATTN_IMPL: patch_attn_impl, ENGINE: patch_engine, ACTOR: patch_actor}


def check_version(module: ModuleType) -> None:
    """Compare a module of AReaL with what the plugin replaces. Raises UnknownAReaL."""
    for name, parameters, caller in _CALLS[module.__name__]:
        function = _member(module, name)
        if function is None:
            raise _unknown(f"{module.__name__} has no {name}")
        found = " ".join(inspect.signature(function).parameters)
        if found != parameters:
            raise _unknown(f"{module.__name__}.{name} takes ({found}), not ({parameters})")
        if not caller:
            continue
        code = getattr(inspect.unwrap(_member(module, caller) or len), "__code__", None)
        if name.rpartition(".")[2] not in getattr(code, "co_names", ()):
            raise _unknown(f"{module.__name__}.{caller} does not call {name}")


def _member(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _unknown(what: str) -> UnknownAReaL:
    from areal.version import __version__

    return UnknownAReaL(
        f"Espalier's plugin knows AReaL 1.0.4 and does not fit AReaL {__version__}: {what}. "
        "Nothing was replaced. Unset ESPALIER_AREAL to train without Espalier."
    )


def _use_trees(engine: Any) -> None:
    """The engine's model attends over trees, and its head makes no logits where that can be."""
    if engine.config.is_critic:  # AReaL refuses it at its first batch, in its own words
        return
    use_trees(engine.model)
    if option("HEAD") == "fused" and engine.parallel_helper.tp_size == 1:
        fuse_head(engine.model, engine.config.temperature)
