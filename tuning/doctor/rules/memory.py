"""Whether the least that a GPU must hold fits it: a lower bound, never an estimate of all.

Notable:
- each engine: its weights, gradients and optimizer state as AReaL keeps them, what engines on the
  same GPU keep there meanwhile, and one tree's masks and logits; activations are left out
- the rollout's server takes its share first: SGLang a fraction of what is free when it starts,
  vLLM a fraction of the whole GPU; what it leaves is what a tree may use
- what cannot be known (a model, experts on Megatron, FP8 weights) is named, and not guessed
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuning.areal.models import find_model
from tuning.doctor.rules.base import Case, Found, rule
from tuning.doctor.rules.placement import colocated, placed

_GIB = 2**30
_MASK_BYTES = 11
"""A pair's byte in the dense mask and about ten while ``create_block_mask`` builds (measured)."""
_BYTES = {"float32": 4, "fp32": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2, "uint8": 1}
_TRAINED = ("actor", "critic")
_SHARES = {"sglang": "sglang.mem_fraction_static", "vllm": "vllm.gpu_memory_utilization"}
_NO_MEMORY = {
    "sglang": "Not enough memory. Please try to increase --mem-fraction-static.",
    "vllm": "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
    "when initializing the engine.",
}
_OUT = "torch.OutOfMemoryError: CUDA out of memory"


@dataclass(frozen=True)
class Need:
    """GiB of one GPU, at the least.

    parts:   what was counted
    unknown: what could not be, each with its reason
    """

    parts: Mapping[str, float]
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def listed(self) -> str:
        return ", ".join(f"{name} {gib:.1f}" for name, gib in self.parts.items())


def need_of(case: Case) -> Need:
    """What this engine needs on a GPU while it runs."""
    parts: dict[str, float] = {}
    unknown: list[str] = []
    name = "weights, gradients, optimizer"
    for role in (case.role, *_beside(case)):
        other = case.of(role)
        if role != case.role and _leaves(other):
            continue
        label = name if role == case.role else f"{role} beside it"
        held = _held_gib(other)
        if isinstance(held, str):
            unknown.append(f"{label} ({held})")
        elif held:
            parts[label] = held
    return Need(parts | _tree_gib(case), tuple(unknown))


def _beside(case: Case) -> list[str]:
    """Other engines on this one's GPUs."""
    gpus = placed(case)
    own = gpus.get(case.role, frozenset())
    return [role for role in case.engines if role != case.role and own & gpus.get(role, own ^ own)]


def _leaves(case: Case) -> bool:
    """Whether AReaL moves this engine to the CPU while others run."""
    return case.setting("offload") is True or (case.role == "actor" and colocated(case))


def _tree_gib(case: Case) -> dict[str, float]:
    """A tree's masks, and one copy of its logits in bfloat16."""
    if not case.trees or case.cap is None:
        return {}
    parts = {"masks": case.cap**2 * (1 if case.engine == "megatron" else _MASK_BYTES) / _GIB}
    if case.model is not None and case.model.vocab and not case.is_critic:
        tensor = 1 if case.backend is None else case.backend.tensor
        parts["logits"] = case.cap * case.model.vocab * 2 / tensor / _GIB
    return parts


def _held_gib(case: Case) -> float | str:
    """Weights, gradients and optimizer state of a rank, or why they are not known."""
    m, b = case.model, case.backend
    if b is None:
        return "its backend is not known"
    if m is None or not m.parameters:
        return "its model's size is not known"
    if b.engine != "megatron":
        return m.parameters * _sharded_bytes(case) / b.gpus / _GIB
    if m.experts:
        return "Megatron shards experts apart"
    if isinstance(case.setting("megatron.fp8_config"), Mapping):
        return "its weights may be FP8"
    weights, optimizer = _megatron_bytes(case)
    spread = b.data * b.context if case.setting("megatron.ddp.use_distributed_optimizer") else 1
    return m.parameters / (b.tensor * b.pipeline) * (weights + optimizer / spread) / _GIB


def _updates(case: Case) -> str | None:
    """The optimizer that updates all weights of this engine; None where none does."""
    kind = case.setting("optimizer.type")
    trained = case.role in _TRAINED and case.setting("use_lora") is not True
    return kind if trained and isinstance(kind, str) else None


def _width(case: Case, name: str) -> int:
    """Bytes of a value of the type that a setting names."""
    return _BYTES.get(str(case.setting(name)), 2)


def _sharded_bytes(case: Case) -> int:
    """Of a parameter on FSDP or Archon: all of it is spread over the engine's ranks.

    FSDP keeps weights in ``optimizer_dtype``, where the version has it, Archon in ``dtype``;
    gradients and AdamW's moments have the weight's type. ``adam_bf16`` keeps two moments and its
    compensation in bfloat16.
    """
    if case.setting(f"{case.engine}.offload_params") is True:
        return 0
    stored = "optimizer_dtype" if case.engine == "fsdp" else "dtype"
    known = case.config.field(case.path(stored), case.version) is not None
    weight = _width(case, stored if known else "dtype")
    kind = _updates(case)
    if kind is None:
        return weight
    moments = {"adam": 2 * weight, "adam_bf16": 6}.get(kind, 0)
    return 2 * weight + (0 if case.setting("fsdp.per_layer_optim_step") is True else moments)


def _megatron_bytes(case: Case) -> tuple[int, int]:
    """Of a parameter: weight and gradient of each rank, optimizer state that may be spread."""
    weight = _width(case, "dtype")
    kind = _updates(case)
    if kind is None:
        return weight, 0
    gradient = 2 if case.setting("megatron.ddp.grad_reduce_in_fp32") is False else 4
    if kind == "adam_bf16":
        return weight + gradient, 4 + 2 + 2
    if kind != "adam":
        return weight + gradient, 4
    if case.setting("megatron.use_precision_aware_optimizer") is not True:
        return weight + gradient, 12
    names = ("main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
    return weight + gradient, sum(_width(case, f"megatron.{name}") for name in names)


@rule(
    "memory",
    "fails at first batch",
    "engine/*_engine.py, models/tree_attn and PyTorch create_block_mask; a lower bound",
    "engine",
)
def memory(case: Case) -> Iterator[Found]:
    budget, need = case.memory_budget_gib, need_of(case)
    if budget <= 0 or need.total <= budget:
        return
    largest = max(need.parts, key=lambda name: need.parts[name])
    lower = "Lower max_tokens_per_mb, or shard" if case.trees else "Shard"
    yield case.found(
        "mb_spec.max_tokens_per_mb" if case.trees else "backend",
        f"A rank needs at least {need.total:.1f} GiB ({need.listed}; activations not counted), "
        f"more than {budget:g} GiB. The largest part: {largest}.",
        f"{lower} over more ranks.",
        _OUT,
        when="in the first forward or backward pass",
    )


@dataclass(frozen=True)
class Server:
    """A rollout server on a GPU of ``budget`` GiB.

    beside:  GiB of engines that stay there while it starts
    share:   GiB that it takes
    weights: GiB of its own weights; 0 where not known
    stays:   engines that run while it keeps its share
    """

    key: str
    fraction: float
    beside: float
    share: float
    weights: float
    stays: tuple[str, ...]


def server_of(case: Case) -> Server | str | None:
    """The rollout's server, why it is not known, or None where the run has none."""
    server, budget = case.server, case.memory_budget_gib
    if server is None or case.config.trainer != "ppo":
        return None
    key = _SHARES[server.kind]
    fraction = case.get(key)
    if isinstance(fraction, bool) or not isinstance(fraction, int | float):
        return f"{key} is left to the server"
    gpus = placed(case)
    own = gpus.get("rollout", frozenset())
    beside = [role for role in case.engines if own & gpus.get(role, own ^ own)]
    shared = colocated(case)
    held = {role: _held_gib(case.of(role)) for role in beside if not _leaves(case.of(role))}
    if unknown := next(
        (f"{role}: {gib}" for role, gib in held.items() if isinstance(gib, str)), ""
    ):
        return unknown
    there = sum(gib for gib in held.values() if not isinstance(gib, str))
    share = fraction * (budget - there if server.kind == "sglang" else budget)
    name = case.get("sglang.model_path" if server.kind == "sglang" else "vllm.model")
    model = find_model(name, case.config.folder) if isinstance(name, str) and name else case.model
    quantized = case.get(f"{server.kind}.quantization") or not model
    parameters = 0 if quantized or model is None else model.parameters
    weights = 2 * parameters / (server.tensor * server.pipeline) / _GIB
    # A server that shares by colocation gives its memory back before training.
    return Server(key, fraction, there, share, weights, () if shared else tuple(beside))


@rule("server-memory", "fails at start", "SGLang's and vLLM's own start; a lower bound", "file")
def server_memory(case: Case) -> Iterator[Found]:
    budget = case.memory_budget_gib
    found = server_of(case) if budget > 0 else None
    if not isinstance(found, Server) or case.server is None:
        return
    what = f"{found.key} is {found.fraction:g}"
    free = budget - found.beside
    if case.server.kind == "vllm" and found.share > free:
        yield Found(
            f"{what} of {budget:g} GiB, and engines on the same GPU keep {found.beside:.1f} GiB.",
            f"Lower it to {max(free / budget, 0):.2f} or less, or offload them.",
            f"Free memory on device ({free:.1f}/{budget:g} GiB) on startup is less than desired "
            f"GPU memory utilization ({found.fraction:g}, {found.share:.1f} GiB).",
            path=found.key,
            when="when the server starts",
        )
    elif found.weights > found.share:
        yield Found(
            f"{what}: the server may take {found.share:.1f} GiB of a GPU, and its weights alone "
            f"have {found.weights:.1f} GiB.",
            "Raise it, or spread the server over more GPUs (t in rollout.backend).",
            _NO_MEMORY[case.server.kind],
            path=found.key,
            when="when the server starts",
        )
    for role in found.stays:
        tree = _tree_gib(case.of(role))
        left = free - found.share
        if sum(tree.values()) > left >= 0:
            yield Found(
                f"{what}, and {role} runs on the same GPU: {left:.1f} of {budget:g} GiB are left "
                f"for a tree, which needs at least {Need(tree).total:.1f} ({Need(tree).listed}; "
                "activations not counted).",
                f"Lower {found.key}, give {role} GPUs of its own, or colocate them with "
                "enable_offload.",
                _OUT,
                path=found.key,
                when="in the first forward or backward pass",
                severity="fails at first batch",
            )
