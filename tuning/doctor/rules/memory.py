"""Whether the least that a rank needs fits its memory: a lower bound, never an estimate of all.

Notable:
- counted: weights, gradients and optimizer state as the engine shards them, one copy of a tree's
  logits in bfloat16, and the masks of one tree; activations are left out
- the mask's transient is AReaL's ``create_block_mask``: about 10 bytes a pair, measured
"""

from __future__ import annotations

from collections.abc import Iterator

from tuning.doctor.rules.base import Case, Found, rule

_GIB = 2**30
_MASK_BYTES = 11
"""One byte a pair for the dense mask and about ten while the block mask is built."""


@rule(
    "memory",
    "fails at first batch",
    "models/tree_attn and PyTorch create_block_mask; a lower bound",
)
def memory(case: Case) -> Iterator[Found]:
    if case.memory_budget_gib <= 0 or case.cap is None:
        return
    terms = dict(least_gib(case))
    total = sum(terms.values())
    if total <= case.memory_budget_gib:
        return
    largest = max(terms, key=lambda name: terms[name])
    listed = ", ".join(f"{name} {gib:.1f}" for name, gib in terms.items())
    yield case.found(
        "mb_spec.max_tokens_per_mb",
        f"A rank needs at least {total:.1f} GiB ({listed}; activations not counted), more than "
        f"{case.memory_budget_gib:g} GiB. The largest part: {largest}.",
        "Lower max_tokens_per_mb, or shard over more ranks.",
        "torch.OutOfMemoryError: CUDA out of memory",
        when="in the first forward or backward pass",
    )


def least_gib(case: Case) -> Iterator[tuple[str, float]]:
    """Parts of a rank's memory in GiB that cannot be avoided."""
    assert case.cap is not None
    b, m = case.backend, case.model
    mask = case.cap**2 * (1 if b is not None and b.engine == "megatron" else _MASK_BYTES)
    if case.trees:
        yield "masks", mask / _GIB
    if m is None:
        return
    tensor = 1 if b is None else b.tensor
    if m.vocab:
        yield "logits", case.cap * m.vocab * 2 / tensor / _GIB
    if m.parameters and b is not None and case.setting("use_lora") is not True:
        if b.engine == "megatron":
            if m.experts:
                return  # experts are sharded apart; nothing safe to say
            own = m.parameters / (b.tensor * b.pipeline)
            state = own * 6 + own * 12 / (b.data * b.context)
        else:
            state = m.parameters * _bytes_each(case, b.engine) / b.gpus
        yield "weights, gradients, optimizer", state / _GIB


def _bytes_each(case: Case, engine: str) -> int:
    """Bytes of a parameter's weight, gradient and optimizer state; 0 where they are offloaded."""
    if case.setting(f"{engine}.offload_params") is True or case.setting("offload") is True:
        return 0
    kind = case.setting("optimizer.type")
    if not isinstance(kind, str) or case.setting("optimizer") is None:
        return 2  # no optimizer: weights alone, in the compute type
    weight = 2 if case.setting("optimizer_dtype") == "bfloat16" else 4
    moments = {"adam": 2 * weight, "adam_bf16": 4}.get(kind, 0)
    return 2 * weight + moments
