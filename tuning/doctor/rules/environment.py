"""Environment variables, and effects of AReaL's version."""

from __future__ import annotations

from collections.abc import Iterator

from tuning.doctor.rules.base import Case, Found, rule


@rule("triton-flag", "silently wrong", "models/tree_attn/triton_kernel.py:720")
def triton_flag(case: Case) -> Iterator[Found]:
    if case.env.get("AREAL_USE_TRITON_TREE_ATTN") not in ("1", "true", "True"):
        return
    if case.engine == "megatron":
        yield Found(
            "AREAL_USE_TRITON_TREE_ATTN is set; Megatron does not read it.",
            "Remove the variable.",
            severity="no effect",
        )
        return
    yield Found(
        "AREAL_USE_TRITON_TREE_ATTN is set. Its backward drops gradients of keys and values in "
        "about one of nine branches (those that start 57 to 63 tokens into a block of 64 and "
        "cover 128 queries).",
        "Remove the variable; FlexAttention is AReaL's default.",
    )


@rule("block-size", "fails at start", "models/tree_attn/constants.py")
def block_size(case: Case) -> Iterator[Found]:
    text = case.env.get("AREAL_FLEX_ATTENTION_BLOCK_SIZE")
    if text is not None and not (text.isdecimal() and int(text) > 0):
        yield Found(
            f"AREAL_FLEX_ATTENTION_BLOCK_SIZE is {text!r}, not a positive number.",
            "Set it to 128, or remove it.",
        )


@rule("static-shapes", "slow", "models/tree_attn (AREAL_DISABLE_FLEX_ATTENTION_DYNAMIC)")
def static_shapes(case: Case) -> Iterator[Found]:
    if case.env.get("AREAL_DISABLE_FLEX_ATTENTION_DYNAMIC") == "1":
        yield Found(
            "AREAL_DISABLE_FLEX_ATTENTION_DYNAMIC is 1: kernels are tuned and compiled for each "
            "new shape.",
            "Fine with one cap; expect a long first step.",
            when="in the first steps",
        )


@rule("megatron-gradient-scale", "silently wrong", "AReaL #1273, fixed in 1.0.4", always=True)
def megatron_gradient_scale(case: Case) -> Iterator[Found]:
    if case.version == "1.0.3" and case.engine == "megatron":
        yield Found(
            "Before 1.0.4 Megatron divided gradients by the number of micro-batches: another "
            "max_tokens_per_mb is another learning rate.",
            "Use AReaL 1.0.4 or later.",
            path=case.path("backend"),
            when="never: no error is raised, the step size changes",
        )


@rule("old-tree-key", "no effect", "branch feat/dta, api/cli_args.py")
def old_tree_key(case: Case) -> Iterator[Found]:
    path = case.path("enable_tree_training")
    if case.version == "tree_training_mode" and case.actor("enable_tree_training") is True:
        yield Found(
            "enable_tree_training is deprecated in this version; it means sparse.",
            f"Write {case.path('tree_training_mode')}: sparse instead.",
            path=path,
            when="AReaL warns and goes on",
        )
