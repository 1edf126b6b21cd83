"""Trainers, losses, minibatches and batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuning.areal.config import TRAINER_NAMES
from tuning.doctor.rules.base import Case, Found, rule


@rule("trainer", "fails at first batch", "trainer/sft/lm_engine.py:102; trainer/dpo/dpo_engine.py")
def trainer(case: Case) -> Iterator[Found]:
    kind = case.config.trainer
    if kind in ("sft", "dpo"):
        yield Found(
            f"This is {TRAINER_NAMES[kind]}; its loss needs cu_seqlens, which a tree has not.",
            "Leave tree training off: it serves PPO and GRPO actors only.",
            says="KeyError: 'cu_seqlens'",
            path=case.path(case.tree_key),
        )


@rule("critic", "fails at first batch", "engine/fsdp_engine.py:2066; archon_utils.py", each=True)
def critic(case: Case) -> Iterator[Found]:
    if not case.is_critic:
        return
    path = case.path(case.tree_key)
    off: Any = "disabled" if case.version == "tree_training_mode" else False
    yield Found(
        "Trees are on in an engine with a value head (a critic, or a reward model).",
        f"Set {path} to {_word(off)}; they serve PPO and GRPO actors and ref.",
        says="Tree training with critic model is not supported yet.",
        path=path,
        severity="fails at start" if case.engine == "archon" else None,
        fix={path: off},
    )


@rule("sequence-level", "fails at first batch", "utils/functional/functional.py:84 and :270")
def sequence_level(case: Case) -> Iterator[Found]:
    if not case.is_ppo:
        return
    if case.setting("importance_sampling_level") == "sequence":
        path = case.path("importance_sampling_level")
        yield Found(
            "importance_sampling_level is sequence (GSPO); trees have no row boundaries there.",
            f"Set {path} to token, or leave tree training off for GSPO.",
            says="cu_seqlens is required for 1D tensors (packed format)",
            path=path,
        )
    if case.setting("rejection_sampling.level") == "sequence" and case.setting(
        "use_decoupled_loss"
    ):
        path = case.path("rejection_sampling.level")
        yield Found(
            "rejection_sampling.level is sequence; trees have no row boundaries there.",
            f"Set {path} to token.",
            says="cu_seqlens is required for 1D packed tensors in sequence-level filtering.",
            path=path,
        )


@rule(
    "batch-divides",
    "fails at first batch",
    "utils/seqpack.py:540; infra/dist_rollout.py",
    always=True,
    each=True,
)
def batch_divides(case: Case) -> Iterator[Found]:
    batch = case.whole("train_dataset.batch_size")
    if case.backend is None or batch is None or not case.config.has("train_dataset.batch_size"):
        return
    ranks = case.backend.data
    if batch % ranks == 0:
        return
    down, up = batch // ranks * ranks, -(-batch // ranks) * ranks
    choices = " or ".join(str(size) for size in (down, up) if size)
    spmd_words = f"batch size({batch}) must be divisible by world_size({ranks})"
    yield Found(
        f"{batch} prompts do not divide over {ranks} data-parallel ranks.",
        f"Set train_dataset.batch_size to {choices}.",
        says=spmd_words if case.spmd else "The length of nums must be divisible by K.",
        path="train_dataset.batch_size",
        severity="fails at start" if case.spmd else None,
        when="when the run starts"
        if case.spmd
        else "when the first batch goes to the ranks, after a whole rollout",
        fix={"train_dataset.batch_size": up},
    )


@rule("dynamic-batch", "fails at first batch", "infra/controller/train_controller.py:76", True)
def dynamic_batch(case: Case) -> Iterator[Found]:
    if case.config.trainer != "ppo" or case.get("dynamic_bs") is not True:
        return
    if case.backend is not None and case.backend.data > 1 and not case.spmd:
        yield Found(
            f"dynamic_bs may leave a batch that does not divide over {case.backend.data} ranks.",
            "Watch for it, or set dynamic_bs to false.",
            says="The length of nums must be divisible by K.",
            path="dynamic_bs",
            when="at a batch whose number of prompts does not divide",
            severity="slow",
        )


@rule(
    "rows-per-minibatch",
    "fails at first batch",
    "trainer/ppo/actor.py:454; seqpack.py",
    always=True,
    each=True,
)
def rows_per_minibatch(case: Case) -> Iterator[Found]:
    trained = case.role in ("actor", "critic")
    if case.config.trainer != "ppo" or case.backend is None or not trained:
        return
    batch = case.whole("train_dataset.batch_size")
    minibatches = case.minibatches
    path = case.path("ppo_n_minibatches")
    samples = case.whole("gconfig.n_samples") or 1
    if batch is None or minibatches is None or not case.config.has("train_dataset.batch_size"):
        return
    rows = batch // case.backend.data * samples
    if 0 < rows < minibatches and not case.config.multi_turn:
        yield Found(
            f"A rank gets {rows} rows ({batch} prompts × {samples} samples over "
            f"{case.backend.data} ranks), fewer than ppo_n_minibatches = {minibatches}.",
            f"Set {path} to at most {rows}.",
            says=f"Number of values {rows} is smaller than min_groups {minibatches}",
            path=path,
            fix={path: rows},
        )


@rule("minibatches-scatter", "slow", "trainer/ppo/actor.py:454")
def minibatches_scatter(case: Case) -> Iterator[Found]:
    minibatches = case.minibatches
    if not case.is_ppo or minibatches is None or minibatches == 1 or case.rows is not None:
        return
    path = case.path("ppo_n_minibatches")
    if case.config.trainer == "engine" and not case.config.has(path):
        return
    default = "" if case.config.has(path) else " (AReaL's default)"
    yield Found(
        f"ppo_n_minibatches is {minibatches}{default}: samples of one prompt are dealt to "
        "different minibatches, and each minibatch computes their prompt again.",
        f"{path}: 1 makes one optimizer step of {minibatches}; that is another algorithm. Give "
        "rows to have the cost counted.",
        path=path,
    )


@rule("engine-beside-trees", "slow", "trainer/rl_trainer.py:784; engine/fsdp_engine.py", each=True)
def engine_beside_trees(case: Case) -> Iterator[Found]:
    """Told of the engine with trees: what of the engines beside it that have none."""
    if case.role != "actor" or case.config.trainer != "ppo":
        return
    for role in case.engines:
        other = case.of(role)
        if role == "actor" or other.trees:
            continue
        shared = other.shares_process and case.engine == other.engine == "fsdp"
        path = other.path(case.tree_key)
        fix: dict[str, Any] = {path: case.tree_value, other.path("pad_to_maximum"): True}
        if case.cap is not None:
            fix[other.path("mb_spec.max_tokens_per_mb")] = case.cap
        mend = f"Set {path} to {_word(case.tree_value)}, {other.path('pad_to_maximum')} to true "
        mend += "and the actor's max_tokens_per_mb."
        if shared and other.is_critic:
            own = other.path("scheduling_strategy.fork")
            yield Found(
                f"{role} runs in the actor's process, where FSDP's attention is replaced by the "
                "trees'; a critic can run there neither with trees nor without.",
                f"Set {own} to true, which gives it a process of its own."
                if not case.spmd
                else "Leave SPMD mode, or tree training.",
                says="_tree_attn_fwd_func requires a pre-created BlockMask",
                path=own,
                severity="fails at first batch",
                fix={} if case.spmd else {own: True},
            )
        elif shared:
            yield Found(
                f"{role} runs without trees in the process where the actor's attention is "
                "replaced.",
                mend,
                says="_tree_attn_fwd_func requires a pre-created BlockMask",
                path=path,
                severity="fails at first batch",
                fix=fix,
            )
        elif role == "ref":
            yield Found(
                f"kl_ctl is {case.setting('kl_ctl')}, so ref computes log-probabilities too, and "
                "without trees.",
                mend,
                path=path,
                fix=fix,
            )


@rule("forced-minibatch", "no effect", "api/cli_args.py (main), PPOActorConfig", always=True)
def forced_minibatch(case: Case) -> Iterator[Found]:
    asked = case.whole(case.path("ppo_n_minibatches"))
    if case.setting("prox_logp_method") == "reuse_train_logp" and asked and asked > 1:
        path = case.path("ppo_n_minibatches")
        yield Found(
            f"prox_logp_method is reuse_train_logp: AReaL runs one minibatch, not {asked}.",
            f"Set {path} to 1, so that the file says what runs.",
            says="Forcing ppo_n_minibatches=1; note this changes training dynamics to a single "
            "optimizer step per PPO update.",
            path=path,
            when="AReaL warns and goes on",
            fix={path: 1},
        )


def _word(value: object) -> str:
    return "true" if value is True else str(value)
