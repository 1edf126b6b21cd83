"""max_tokens_per_mb, its padding, and the settings beside it that trees do not read."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tuning.areal.config import UNKNOWN
from tuning.doctor.rules.base import MOST_TOKENS, Case, Found, rule

_CAP = "mb_spec.max_tokens_per_mb"
_TREE = "models/tree_attn/tree.py, build_packed_tree_batch"


@rule("cap-unset", "fails at first batch", _TREE)
def cap_unset(case: Case) -> Iterator[Found]:
    value = case.setting(_CAP)
    if value is None or (isinstance(value, int) and value <= 0):
        state = "not set" if value is None else f"{value}"
        yield case.found(
            _CAP,
            f"max_tokens_per_mb is {state}; a tree needs a size.",
            f"Set {case.path(_CAP)}, such as 8192; the Tune page finds the fastest.",
            "MicroBatchSpec.max_tokens_per_mb must be a positive value for tree training.",
        )
    elif isinstance(value, int) and value > MOST_TOKENS:
        yield case.found(
            _CAP,
            f"max_tokens_per_mb has {len(f'{value:x}') * 4} bits; each tree is padded to it.",
            f"Set {case.path(_CAP)}, such as 8192; the Tune page finds the fastest.",
            "torch.OutOfMemoryError: CUDA out of memory",
        )


@rule("cap-alignment", "fails at first batch", _TREE)
def cap_alignment(case: Case) -> Iterator[Found]:
    if case.cap is None:
        return
    parallel = 1
    if case.backend is not None:
        context = case.backend.context if case.engine == "fsdp" else 1
        parallel = case.backend.tensor * context
    align = math.lcm(case.block, parallel)
    if case.cap % align:
        up = -(-case.cap // align) * align
        yield case.found(
            _CAP,
            f"max_tokens_per_mb is {case.cap}, not a multiple of {align} "
            f"(lcm of {case.block} and {parallel}).",
            says=f"max_tokens_per_tree ({case.cap}) must be a multiple of {align} (lcm of "
            f"BLOCK_SIZE={case.block} and parallel_size={parallel})",
            to=up,
        )


@rule("pad-to-maximum", "fails at first batch", _TREE)
def pad_to_maximum(case: Case) -> Iterator[Found]:
    if case.setting("pad_to_maximum") is not False:
        return
    if case.engine == "archon":
        yield case.found(
            "pad_to_maximum",
            "pad_to_maximum is false; Archon sets it to true by itself.",
            f"Set {case.path('pad_to_maximum')} to true, so that the file says what runs.",
            "Tree training enabled: forcing pad_to_maximum=True for block mask alignment.",
            to=True,
            severity="no effect",
        )
        return
    problem = "pad_to_maximum is false; trees are always padded."
    says = "No padding is not supported for tree training."
    yield case.found("pad_to_maximum", problem, says=says, to=True)


def longest_possible(case: Case) -> tuple[int, str] | None:
    """Tokens of the longest row that the settings allow, and how that comes about.

    None where they do not say: no generation, or a value that only the run knows.
    """
    if case.config.trainer != "ppo" or (case.config.fragment and not case.config.has("gconfig")):
        return None
    agent = case.config.agent
    limit = case.whole("rollout.agent.engine_max_tokens") if agent else None
    name = "rollout.agent.engine_max_tokens" if limit else "gconfig.max_tokens"
    total = limit or case.whole("gconfig.max_tokens")
    if total is None:
        return None
    default = "" if case.config.has(name) else ", AReaL's default"
    found = [(total, f"{name} is {total}{default}")]
    new = case.whole("gconfig.max_new_tokens")
    prompt = case.whole("train_dataset.max_length")
    if new and prompt and not agent:
        words = f"a prompt of {prompt} (train_dataset.max_length) and {new} new tokens"
        found.append((prompt + new, words))
    return min(found)


@rule(
    "cap-below-generation",
    "fails at first batch",
    "models/tree_attn/tree.py:509; utils/seqpack.py:243",
    "engine",
)
def cap_below_generation(case: Case) -> Iterator[Found]:
    longest = longest_possible(case)
    if case.cap is None or longest is None or longest[0] <= case.cap:
        return
    if case.rows is not None and (case.rows.longest > case.cap or case.config.agent):
        return  # the rows themselves tell
    tokens, why = longest
    up = -(-tokens // case.block) * case.block
    lower = {"gconfig.max_tokens": case.cap}
    if case.config.has("rollout.agent.engine_max_tokens"):
        lower["rollout.agent.engine_max_tokens"] = case.cap
    yield Found(
        f"A row may have {tokens:,} tokens ({why}), more than max_tokens_per_mb = {case.cap:,}. "
        "The first such row stops the run; nothing is cut.",
        f"Set {' and '.join(lower)} to {case.cap}, or raise {case.path(_CAP)} to {up}.",
        says=f"Sequence length {tokens} exceeds max_tokens_per_tree {case.cap}; adjust limit or "
        "split sequences."
        if case.trees
        else f"Values [{tokens}] is larger than capacity {case.cap}",
        path=case.path(_CAP),
        when="at the first batch that holds such a row",
        fix=lower,
    )


@rule("ignored-by-trees", "no effect", _TREE)
def ignored_by_trees(case: Case) -> Iterator[Found]:
    for name in ("n_mbs", "granularity", "n_mbs_divisor"):
        value = case.setting(f"mb_spec.{name}")
        if value is not UNKNOWN and value != 1:
            yield case.found(
                f"mb_spec.{name}",
                f"{name} is {value}; trees do not read it.",
                f"Remove {case.path(f'mb_spec.{name}')}, or leave it at 1.",
                "`n_mbs`, `granularity` and `n_mbs_divisor` is currently not effective for "
                "tree packing.",
            )
    if case.setting("mb_spec.packing_algorithm") == "kk" and not case.spmd:
        yield Found(
            "packing_algorithm is kk; trees are packed first fit in input order.",
            "Nothing needs to change; it stays in force for batches without trees.",
            path=case.path("mb_spec.packing_algorithm"),
        )
