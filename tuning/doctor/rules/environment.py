"""Environment variables, and effects of AReaL's version."""

from __future__ import annotations

from collections.abc import Iterator

from tuning.doctor.rules.base import Case, Found, rule


@rule("triton-flag", "silently wrong", "models/tree_attn/triton_kernel.py:720")
def triton_flag(case: Case) -> Iterator[Found]:
    try:
        asked = case.number_of("AREAL_USE_TRITON_TREE_ATTN")
    except ValueError:
        return  # the rule below
    if asked == 1 and case.engine == "megatron":
        problem = "AREAL_USE_TRITON_TREE_ATTN is set; Megatron does not read it."
        yield Found(problem, "Remove the variable.", severity="no effect")
    elif asked == 1:
        yield Found(
            "AREAL_USE_TRITON_TREE_ATTN is set. Its backward drops gradients of keys and values in "
            "about one of nine branches (those that start 57 to 63 tokens into a block of 64 and "
            "cover 128 queries).",
            "Remove the variable; FlexAttention is AReaL's default.",
        )


_NUMBERS = {"AREAL_FLEX_ATTENTION_BLOCK_SIZE": "128", "AREAL_USE_TRITON_TREE_ATTN": "0"}


@rule("number-in-environment", "fails at start", "models/tree_attn/constants.py", "engine")
def number_in_environment(case: Case) -> Iterator[Found]:
    """Read by ``int(…)`` as AReaL is imported: " 128 " and "+128" are numbers, "true" is none."""
    for name, usual in _NUMBERS.items():
        problem = says = when = ""
        try:
            size = case.number_of(name)
            if name.endswith("BLOCK_SIZE") and size is not None and size <= 0:
                problem = f"{name} is {size}; a block has at least one token."
        except ValueError:
            problem = f"{name} is {case.env[name]!r}, which is no whole number."
            says = f"ValueError: invalid literal for int() with base 10: {case.env[name]!r}"
            when = "when a worker imports AReaL"
        if problem:
            mend = f"Set it to {usual}, or remove it."
            yield case.found("scheduling_spec", problem, mend, says, when=when)


@rule("static-shapes", "slow", "models/tree_attn (AREAL_DISABLE_FLEX_ATTENTION_DYNAMIC)")
def static_shapes(case: Case) -> Iterator[Found]:
    if case.env.get("AREAL_DISABLE_FLEX_ATTENTION_DYNAMIC") == "1":
        yield Found(
            "AREAL_DISABLE_FLEX_ATTENTION_DYNAMIC is 1: kernels are tuned and compiled for each "
            "new shape.",
            "Fine with one cap; expect a long first step.",
            when="in the first steps",
        )


@rule("megatron-gradient-scale", "silently wrong", "AReaL #1273, fixed in 1.0.4", "engine")
def megatron_gradient_scale(case: Case) -> Iterator[Found]:
    if case.version == "1.0.3" and case.engine == "megatron":
        yield case.found(
            "backend",
            "Before 1.0.4 Megatron divided gradients by the number of micro-batches: another "
            "max_tokens_per_mb is another learning rate.",
            "Use AReaL 1.0.4 or later.",
            when="never: no error is raised, the step size changes",
        )


@rule("old-tree-key", "no effect", "branch feat/dta, api/cli_args.py")
def old_tree_key(case: Case) -> Iterator[Found]:
    if case.version == "tree_training_mode" and case.setting("enable_tree_training") is True:
        yield case.found(
            "enable_tree_training",
            "enable_tree_training is deprecated in this version; it means sparse.",
            f"Write {case.path('tree_training_mode')}: sparse instead.",
            when="AReaL warns and goes on",
        )
