"""Models whose attention AReaL's trees do not honour."""

from __future__ import annotations

from collections.abc import Iterator

from tuning.doctor.rules.base import Case, Found, rule

_ARCHON_TREES = ("qwen2", "qwen3", "qwen3_moe")
_ARCHON = (*_ARCHON_TREES, "qwen3_5", "qwen3_5_moe")
_OTHER = "Leave tree training off for this model."


@rule("vision-model", "silently wrong", "engine/fsdp_engine.py:1797 (before the image path)")
def vision_model(case: Case) -> Iterator[Found]:
    if case.model is None or not case.model.vision:
        return
    if case.engine == "megatron":
        yield case.found(
            "path",
            f"{case.model.name} takes images; Megatron passes it no tree mask.",
            _OTHER,
            "PytorchFlexAttention requires either a BlockMask, dense tensor, or "
            "TreeAttentionData as attention_mask.",
            severity="fails at first batch",
        )
    else:
        yield case.found(
            "path",
            f"{case.model.name} takes images; the tree path skips image positions (mRoPE) and "
            "copies the whole batch's images into every tree.",
            _OTHER,
            when="at the first batch, or never: nothing checks for it",
        )


@rule("hybrid-attention", "silently wrong", "models/tree_attn; archon/qwen3_5")
def hybrid_attention(case: Case) -> Iterator[Found]:
    m = case.model
    kinds = (
        {}
        if m is None
        else {
            "linear-attention layers, whose state runs from one branch into the next": m.hybrid,
            "sliding-window layers, whose window counts tokens of other branches": m.sliding,
            "multi-head latent attention, which the tree path does not replace": m.latent,
        }
    )
    has = " and ".join(words for words, there in kinds.items() if there)
    if m is not None and has:
        yield case.found("path", f"{m.name} has {has}.", _OTHER)


@rule("archon-model", "silently wrong", "experimental/models/archon/*/model.py", engine="archon")
def archon_model(case: Case) -> Iterator[Found]:
    m = case.model
    if m is None or m.family in _ARCHON_TREES:
        return
    if m.family.startswith("qwen3_5"):
        yield case.found(
            "path",
            f"Archon's {m.family} does not read the tree: it computes plain causal attention over "
            "the packed tree.",
            _OTHER,
        )
    elif not m.vision:
        yield case.found(
            "path",
            f"Archon has no model of type {m.family}; it has {', '.join(_ARCHON)}.",
            f"Set {case.path('backend')} to fsdp.",
            severity="fails at start",
        )


@rule("mixture-of-experts", "slow", "docs/en/reference/tree_training.md; examples/tau2")
def mixture_of_experts(case: Case) -> Iterator[Found]:
    if case.model is not None and case.model.experts:
        yield case.found(
            "path",
            f"{case.model.name} is a mixture of experts. It runs, but AReaL's docs warn of "
            "instability, and its own MoE examples leave trees off.",
            "Compare a few steps' log-probabilities and rewards with trees off before relying "
            "on it.",
            when="not always; AReaL's documentation warns",
        )
