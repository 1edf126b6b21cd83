"""Trainers, losses, minibatches and batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tuning.areal.config import TRAINER_NAMES
from tuning.doctor.rules.base import Case, Found, rule, word

_BATCH = "train_dataset.batch_size"
_REPLACED = "_tree_attn_fwd_func requires a pre-created BlockMask"


@rule(
    "trainer",
    "fails at first batch",
    "trainer/sft/lm_engine.py:102; trainer/dpo/dpo_engine.py",
    "actor",
)
def trainer(case: Case) -> Iterator[Found]:
    kind = case.config.trainer
    if kind in ("sft", "dpo"):
        yield case.found(
            case.tree_key,
            f"This is {TRAINER_NAMES[kind]}; its loss needs cu_seqlens, which a tree has not.",
            "Leave tree training off: it serves PPO and GRPO actors only.",
            "KeyError: 'cu_seqlens'",
        )


@rule("critic", "fails at first batch", "engine/fsdp_engine.py:2066; archon_utils.py")
def critic(case: Case) -> Iterator[Found]:
    if case.is_critic:
        off: Any = "disabled" if case.version == "tree_training_mode" else False
        yield case.found(
            case.tree_key,
            "Trees are on in an engine with a value head (a critic, or a reward model).",
            f"Set {case.path(case.tree_key)} to {word(off)}; they serve PPO and GRPO actors and "
            "ref.",
            "Tree training with critic model is not supported yet.",
            to=off,
            severity="fails at start" if case.engine == "archon" else None,
        )


@rule(
    "sequence-level", "fails at first batch", "utils/functional/functional.py:84 and :270", "actor"
)
def sequence_level(case: Case) -> Iterator[Found]:
    level, rejection = "importance_sampling_level", "rejection_sampling.level"
    if case.is_ppo and case.setting(level) == "sequence":
        yield case.found(
            level,
            f"{level} is sequence (GSPO); trees have no row boundaries there.",
            f"Set {case.path(level)} to token, or leave tree training off for GSPO.",
            "cu_seqlens is required for 1D tensors (packed format)",
        )
    decoupled = case.is_ppo and case.setting("use_decoupled_loss")
    if decoupled and case.setting(rejection) == "sequence":
        yield case.found(
            rejection,
            f"{rejection} is sequence; trees have no row boundaries there.",
            f"Set {case.path(rejection)} to token.",
            "cu_seqlens is required for 1D packed tensors in sequence-level filtering.",
        )


@rule(
    "batch-divides", "fails at first batch", "utils/seqpack.py:540; infra/dist_rollout.py", "engine"
)
def batch_divides(case: Case) -> Iterator[Found]:
    batch = case.batch_size
    if case.backend is None or batch is None or batch % case.backend.data == 0:
        return
    ranks = case.backend.data
    down, up = batch // ranks * ranks, -(-batch // ranks) * ranks
    choices = " or ".join(str(size) for size in (down, up) if size)
    problem = f"{batch} prompts do not divide over {ranks} data-parallel ranks."
    found = Found(problem, f"Set {_BATCH} to {choices}.", path=_BATCH, fix={_BATCH: up})
    if case.spmd:
        says = f"batch size({batch}) must be divisible by world_size({ranks})"
        when = "when the run starts"
        yield replace(found, says=says, when=when, severity="fails at start")
    else:
        when = "when the first batch goes to the ranks, after a whole rollout"
        yield replace(found, says="The length of nums must be divisible by K.", when=when)


@rule("dynamic-batch", "fails at first batch", "infra/controller/train_controller.py:76", "file")
def dynamic_batch(case: Case) -> Iterator[Found]:
    ranks = 1 if case.backend is None or case.spmd else case.backend.data
    if case.config.trainer == "ppo" and case.get("dynamic_bs") is True and ranks > 1:
        yield Found(
            f"dynamic_bs may leave a batch that does not divide over {ranks} ranks.",
            "Watch for it, or set dynamic_bs to false.",
            says="The length of nums must be divisible by K.",
            path="dynamic_bs",
            when="at a batch whose number of prompts does not divide",
            severity="slow",
        )


@rule(
    "rows-per-minibatch", "fails at first batch", "trainer/ppo/actor.py:454; seqpack.py", "engine"
)
def rows_per_minibatch(case: Case) -> Iterator[Found]:
    batch, minibatches = case.batch_size, case.minibatches
    trained = case.config.trainer == "ppo" and case.role in ("actor", "critic")
    if not trained or case.backend is None or batch is None or minibatches is None:
        return
    samples = case.whole("gconfig.n_samples") or 1
    rows = batch // case.backend.data * samples
    if 0 < rows < minibatches and not case.config.multi_turn:
        yield case.found(
            "ppo_n_minibatches",
            f"A rank gets {rows} rows ({batch} prompts × {samples} samples over "
            f"{case.backend.data} ranks), fewer than ppo_n_minibatches = {minibatches}.",
            f"Set {case.path('ppo_n_minibatches')} to at most {rows}.",
            f"Number of values {rows} is smaller than min_groups {minibatches}",
            to=rows,
        )


@rule("minibatches-scatter", "slow", "trainer/ppo/actor.py:454", "actor")
def minibatches_scatter(case: Case) -> Iterator[Found]:
    minibatches = case.minibatches
    if not case.is_ppo or minibatches is None or minibatches == 1 or case.rows is not None:
        return
    path = case.path("ppo_n_minibatches")
    if case.config.has(path) or case.config.trainer != "engine":
        default = "" if case.config.has(path) else " (AReaL's default)"
        yield case.found(
            "ppo_n_minibatches",
            f"ppo_n_minibatches is {minibatches}{default}: samples of one prompt are dealt to "
            "different minibatches, and each minibatch computes their prompt again.",
            f"{path}: 1 makes one optimizer step of {minibatches}; that is another algorithm. Give "
            "rows to have the cost counted.",
        )


@rule("engine-beside-trees", "slow", "trainer/rl_trainer.py:784; engine/fsdp_engine.py")
def engine_beside_trees(case: Case) -> Iterator[Found]:
    """Told of the engine with trees: what of the engines beside it that have none."""
    if case.role != "actor" or case.config.trainer != "ppo":
        return
    for role in case.engines:
        other = case.of(role)
        if role == "actor" or other.trees:
            continue
        path, padded = other.path(case.tree_key), other.path("pad_to_maximum")
        fix: dict[str, Any] = {path: case.tree_value, padded: True}
        if case.cap is not None:
            fix[other.path("mb_spec.max_tokens_per_mb")] = case.cap
        mend = f"Set {path} to {word(case.tree_value)}, {padded} to true and the actor's "
        mend += "max_tokens_per_mb."
        if other.shares_process and case.engine == other.engine == "fsdp":
            problem = f"{role} runs without trees in the process where the actor's attention is "
            problem += "replaced."
            if other.is_critic:
                path = other.path("scheduling_strategy.fork")
                fix = {} if case.spmd else {path: True}
                problem = (
                    f"{role} runs in the actor's process, where FSDP's attention is replaced by "
                    "the trees'; a critic can run there neither with trees nor without."
                )
                mend = f"Set {path} to true, which gives it a process of its own."
                mend = "Leave SPMD mode, or tree training." if case.spmd else mend
            yield Found(problem, mend, _REPLACED, path, severity="fails at first batch", fix=fix)
        elif role == "ref":
            yield Found(
                f"kl_ctl is {case.setting('kl_ctl')}, so ref computes log-probabilities too, and "
                "without trees.",
                mend,
                path=path,
                fix=fix,
            )


@rule("forced-minibatch", "no effect", "api/cli_args.py (main), PPOActorConfig", "file")
def forced_minibatch(case: Case) -> Iterator[Found]:
    path = case.path("ppo_n_minibatches")
    asked = case.whole(path)
    if case.setting("prox_logp_method") == "reuse_train_logp" and asked and asked > 1:
        yield case.found(
            "ppo_n_minibatches",
            f"prox_logp_method is reuse_train_logp: AReaL runs one minibatch, not {asked}.",
            f"Set {path} to 1, so that the file says what runs.",
            "Forcing ppo_n_minibatches=1; note this changes training dynamics to a single "
            "optimizer step per PPO update.",
            to=1,
            when="AReaL warns and goes on",
        )
