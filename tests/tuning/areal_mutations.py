"""Configs that are a little wrong, or differently right: seeded edits of whole configs.

Notable:
- a section of AReaL's schema is drawn first, then one of its fields: every section is hit
- a value is drawn from what a person writes there: another type, a bound, a misspelling, nothing,
  a reference; pairs of fields that AReaL joins, and backends, are drawn as often
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tuning.areal.schema import Field, Version, table

REMOVED = "<removed>"
_REFERENCES = (
    "${actor.nosuch}",
    "${nosuch}",
    "${actor}",
    "${actor.path}",
    "${seed}",
    "${train_dataset.batch_size}",
    "${experiment_name}",
    "${cluster.fileroot}/x",
    "${.nosuch}",
    "${unclosed",
    "${nosuch:1}",
    "???",
)
_STRINGS = ("", "  ", "x", "8k", "8192", "1e-3", "true", "off", "a/b", "none", "0x10", "1_000")
_NUMBERS = (-1, 0, 1, 2, 7, 0.5, 1.0, 1e30, -0.1, float("inf"))
_DATA: tuple[Any, ...] = ([], {}, [1, "a"], {"a": 1}, None, True, False)
_BACKENDS = (
    "fsdp:d2p2",
    "fsdp:d4t2c1",
    "megatron:d2e4",
    "megatron:(attn:d2t2|ffn:d1e2)",
    "megatron:(attn:d4p4t2|ffn:d2p4e4)",
    "megatron[actor]:(attn:d4|ffn:e4)",
    "archon:d2e4",
    "archon:d8",
    "sglang:d4",
    "vllm:d4t2",
    "fsdp:d4+sglang:d4",
    "d4",
    "fsdp.d4",
    "fsdp : d 4",
)
_JOINED: tuple[dict[str, tuple[Any, ...]], ...] = (
    {
        "actor.use_sapo_loss": (True, False),
        "actor.use_decoupled_loss": (True, False),
        "actor.sapo_tau_pos": (1.0, 0, -1.0),
    },
    {
        "actor.rejection_sampling.metric": ("ratio", "kl_k1", "kl_k2", "kl_k3", "binary_kl"),
        "actor.rejection_sampling.upper": (5.0, 1.0, 0.0, -1.0),
        "actor.rejection_sampling.lower": (None, 0.5, 0.0, 9.0),
        "actor.rejection_sampling.action": ("mask", "clamp"),
    },
    {
        "actor.scheduling_strategy.type": ("colocation", "separation"),
        "actor.scheduling_strategy.target": ("rollout", "ref", None),
        "enable_offload": (True, False),
        "actor.weight_update_mode": ("disk", "xccl", "awex"),
    },
    {
        "rollout.scheduling_strategy.type": ("colocation", "separation"),
        "rollout.scheduling_strategy.target": ("actor", None),
        "enable_offload": (True, False),
        "actor.weight_update_mode": ("disk", "xccl", "awex"),
    },
    {"ref.offload": (True,), "enable_offload": (True, False), "critic.offload": (True, False)},
    {"actor._version": ("v1", "v2"), "rollout._version": ("v1", "v2", "v3")},
    {
        "actor.backend": ("megatron:d4", "fsdp:d4"),
        "actor.use_lora": (True, False),
        "rollout.backend": ("sglang:d4", "vllm:d4"),
        "rollout.return_routed_experts": (True, False),
    },
    {
        "actor.reward_norm.mean_level": ("group", "batch", None, "row"),
        "actor.reward_norm.group_size": (1, 0, -2, 4),
        "gconfig.reward_normalization": (True, False),
    },
    {
        "actor.archon.fp8_config.mode": ("blockwise", "disabled", "row"),
        "actor.archon.fp8_config.use_triton": (True, False),
    },
    {"actor.fsdp.memory_efficient_load": (True,), "actor.init_from_scratch": (True, False)},
    {
        "actor.use_cispo_loss": (True,),
        "actor.eps_clip_higher": (None, 0.0, 0.28),
        "actor.importance_sampling_level": ("token", "sequence"),
        "actor.use_sapo_loss": (True, False),
    },
    {
        "actor.enable_delta_weight_update": (True,),
        "actor.ppo_n_minibatches": (1, 4),
        "actor.prox_logp_method": ("recompute", "reuse_train_logp", "never"),
    },
    {
        "rollout.deterministic_sampling": (True,),
        "gconfig.seed": (None, 1),
        "gconfig.n_samples": (1, 8),
    },
    {
        "actor.megatron.lm_head_loss_chunk_size": (0, 1024, -1),
        "actor.megatron.enable_chunked_logits": (True, False),
        "actor.megatron.entropy_requires_grad": (True, False),
    },
    {"teacher.engine_type": ("rollout", "train"), "teacher.rollout.backend": ("sglang:d1", "x")},
    {"actor.is_critic": (True, False), "total_train_epochs": (1, 0)},
    {"actor.behave_imp_weight_cap": (5.0,)},
    {"allocation_mode": ("sglang:d4+fsdp:d4",), "actor.backend": (REMOVED, "fsdp:d4")},
    {"ref.backend": _BACKENDS, "actor.kl_ctl": (0.0, 0.1)},
    {"actor.backend": _BACKENDS},
    {"rollout.backend": _BACKENDS},
    {"critic.backend": _BACKENDS},
)


@dataclass(frozen=True)
class Mutation:
    """Edits of a config: path and value each, ``REMOVED`` where the key goes."""

    base: str
    edits: tuple[tuple[str, Any], ...]

    def applied(self, bases: Mapping[str, Any]) -> str:
        """The edited config as YAML."""
        values = copy.deepcopy(bases[self.base])
        for path, value in self.edits:
            _edit(values, path.split("."), value)
        return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)

    @property
    def section(self) -> str:
        """The part of the config that is edited."""
        return self.edits[0][0].split(".")[0]


def _edit(values: dict[str, Any], parts: list[str], value: Any) -> None:
    *above, last = parts
    for part in above:
        inner = values.get(part)
        if not isinstance(inner, dict):
            inner = values[part] = {}
        values = inner
    if value == REMOVED and isinstance(value, str):
        values.pop(last, None)
    else:
        values[last] = value


def mutations(
    bases: Mapping[str, Any], classes: Mapping[str, str], version: Version, seed: int, count: int
) -> Iterator[Mutation]:
    """``count`` edits; ``classes`` names the class of each base."""
    rng = random.Random(seed)
    for _ in range(count):
        base = rng.choice(sorted(bases))
        kind = rng.random()
        if kind < 0.3 and classes[base] == "PPOConfig":
            drawn = rng.choice(_JOINED)
            yield Mutation(base, tuple((path, rng.choice(v)) for path, v in drawn.items()))
        elif kind < 0.36:
            path = rng.choice([p for p, _ in _paths(bases[base])])
            yield Mutation(base, ((path, REMOVED),))
        elif kind < 0.42:
            path = rng.choice([p for p, _ in _paths(bases[base])])
            place = rng.randrange(len(path) + 1)
            yield Mutation(base, ((path[:place] + rng.choice("aeiou_s") + path[place:], 1),))
        else:
            yield Mutation(base, (_field_edit(rng, version, classes[base]),))


def _paths(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        yield f"{above}{key}", value
        if isinstance(value, Mapping):
            yield from _paths(value, f"{above}{key}.")


def _field_edit(rng: random.Random, version: Version, name: str) -> tuple[str, Any]:
    """A section at random, as deep as it goes, then a field of it, then a value for it."""
    path: list[str] = []
    while True:
        fields = table(version, name)
        inner = [key for key, known in fields.items() if known.section]
        if not inner or (path and rng.random() < 0.5):
            break
        key = rng.choice(inner)
        path.append(key)
        name = fields[key].type
    if rng.random() < 0.1 and path:
        return ".".join(path), rng.choice((*_DATA, *_STRINGS, *_REFERENCES))
    known = rng.choice(list(table(version, name).values()))
    return ".".join([*path, known.name]), _value(rng, known)


def _value(rng: random.Random, known: Field) -> Any:
    wanted: list[tuple[Any, ...]] = [_STRINGS, _NUMBERS, _DATA, _REFERENCES]
    if known.choices or known.documented:
        wanted += [(*known.choices, *known.documented), (*known.choices, *known.documented)]
    if known.type in ("int", "float"):
        wanted += [_NUMBERS, _NUMBERS]
    if known.type == "bool":
        wanted += [(True, False, "yes", "maybe", 2)]
    if known.name == "backend":
        wanted += [_BACKENDS, _BACKENDS]
    if known.type.startswith("list"):
        wanted += [([], [{}], [{}, {}], [{}, {}, {}], [{"gpu": "x"}], [{"nosuch": 1}], ["a", 1])]
    return rng.choice(rng.choice(wanted))
