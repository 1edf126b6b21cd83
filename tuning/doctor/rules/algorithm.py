"""Trainers, losses, minibatches and batches."""

from __future__ import annotations

from collections.abc import Iterator

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


@rule("critic", "fails at first batch", "engine/fsdp_engine.py:2066; archon_utils.py")
def critic(case: Case) -> Iterator[Found]:
    if case.config.trainer == "rw" or case.actor("is_critic") is True:
        yield Found(
            "The engine is a critic (is_critic), or the trainer a reward model.",
            "Leave tree training off here: it serves PPO and GRPO actors only.",
            says="Tree training with critic model is not supported yet.",
            path=case.path("is_critic"),
            severity="fails at start" if case.engine == "archon" else None,
        )


@rule("critic-with-trees", "fails at first batch", "engine/fsdp_engine.py:2066", always=True)
def critic_with_trees(case: Case) -> Iterator[Found]:
    if case.config.trainer == "ppo" and case.config.has("critic") and case.tree_on("critic"):
        yield Found(
            "critic.enable_tree_training is true.",
            "Set critic.enable_tree_training to false; actor and ref may keep theirs.",
            says="Tree training with critic model is not supported yet.",
            path="critic.enable_tree_training",
            fix={"critic.enable_tree_training": False},
        )


@rule("sequence-level", "fails at first batch", "utils/functional/functional.py:84 and :270")
def sequence_level(case: Case) -> Iterator[Found]:
    if not case.is_ppo:
        return
    if case.actor("importance_sampling_level") == "sequence":
        path = case.path("importance_sampling_level")
        yield Found(
            "importance_sampling_level is sequence (GSPO); trees have no row boundaries there.",
            f"Set {path} to token, or leave tree training off for GSPO.",
            says="cu_seqlens is required for 1D tensors (packed format)",
            path=path,
        )
    if case.actor("rejection_sampling.level") == "sequence" and case.actor("use_decoupled_loss"):
        path = case.path("rejection_sampling.level")
        yield Found(
            "rejection_sampling.level is sequence; trees have no row boundaries there.",
            f"Set {path} to token.",
            says="cu_seqlens is required for 1D packed tensors in sequence-level filtering.",
            path=path,
        )


@rule("batch-divides", "fails at first batch", "utils/seqpack.py:540; infra/dist_rollout.py", True)
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


@rule("rows-per-minibatch", "fails at first batch", "trainer/ppo/actor.py:454; seqpack.py", True)
def rows_per_minibatch(case: Case) -> Iterator[Found]:
    if case.config.trainer != "ppo" or case.backend is None:
        return
    batch = case.whole("train_dataset.batch_size")
    minibatches = case.whole("actor.ppo_n_minibatches")
    samples = case.whole("gconfig.n_samples") or 1
    if batch is None or minibatches is None or not case.config.has("train_dataset.batch_size"):
        return
    rows = batch // case.backend.data * samples
    agent = any(case.config.has(key) for key in ("econfig", "agent_run_args", "max_turns"))
    if 0 < rows < minibatches and not agent:
        yield Found(
            f"A rank gets {rows} rows ({batch} prompts × {samples} samples over "
            f"{case.backend.data} ranks), fewer than ppo_n_minibatches = {minibatches}.",
            f"Set actor.ppo_n_minibatches to at most {rows}.",
            says=f"Number of values {rows} is smaller than min_groups {minibatches}",
            path="actor.ppo_n_minibatches",
            fix={"actor.ppo_n_minibatches": 1},
        )


@rule("minibatches-scatter", "slow", "trainer/ppo/actor.py:454")
def minibatches_scatter(case: Case) -> Iterator[Found]:
    minibatches = case.whole(case.path("ppo_n_minibatches"))
    if not case.is_ppo or minibatches is None or minibatches == 1 or case.rows is not None:
        return
    path = case.path("ppo_n_minibatches")
    if case.config.trainer == "engine" and not case.config.has(path):
        return
    default = "" if case.config.has(path) else " (AReaL's default)"
    yield Found(
        f"ppo_n_minibatches is {minibatches}{default}: samples of one prompt are dealt to "
        "different minibatches, and each minibatch computes their prompt again.",
        f"Set {path} to 1 where the algorithm allows it; give rows to have the cost counted.",
        path=path,
        fix={path: 1},
    )


@rule("reference-settings", "fails at first batch", "trainer/rl_trainer.py:784; engine tree paths")
def reference_settings(case: Case) -> Iterator[Found]:
    if not case.uses_ref:
        return
    kl = case.actor("kl_ctl")
    if not case.tree_on("ref"):
        path = f"ref.{case.tree_key}"
        fix = {path: case.tree_value, "ref.pad_to_maximum": True}
        if case.spmd and case.engine == "fsdp":
            yield Found(
                "ref runs without trees in the process where the actor's attention is replaced.",
                f"Set {path} to {_word(case.tree_value)}, ref.pad_to_maximum to true and the "
                "actor's max_tokens_per_mb.",
                says="_tree_attn_fwd_func requires a pre-created BlockMask",
                path=path,
                fix=fix,
            )
        else:
            yield Found(
                f"kl_ctl is {kl}, so ref computes log-probabilities too, and without trees.",
                f"Set {path} to {_word(case.tree_value)} and ref.pad_to_maximum to true.",
                path=path,
                severity="slow",
                fix=fix,
            )
        return
    cap = case.get("ref.mb_spec.max_tokens_per_mb")
    if cap is None or (isinstance(cap, int) and (cap <= 0 or cap % case.block)):
        path = "ref.mb_spec.max_tokens_per_mb"
        yield Found(
            f"ref uses trees, and its max_tokens_per_mb is {'not set' if cap is None else cap}.",
            f"Set {path} as for the actor"
            + (f", to {case.cap}." if case.cap and case.cap % case.block == 0 else "."),
            says="MicroBatchSpec.max_tokens_per_mb must be a positive value for tree training."
            if cap is None or cap <= 0
            else f"max_tokens_per_tree ({cap}) must be a multiple of {case.block}",
            path=path,
            fix={path: case.cap} if case.cap and case.cap % case.block == 0 else {},
        )
    if case.get("ref.pad_to_maximum") is False and case.engine != "archon":
        yield Found(
            "ref uses trees, and ref.pad_to_maximum is false.",
            "Set ref.pad_to_maximum to true.",
            says="No padding is not supported for tree training.",
            path="ref.pad_to_maximum",
            fix={"ref.pad_to_maximum": True},
        )


def _word(value: object) -> str:
    return "true" if value is True else str(value)
