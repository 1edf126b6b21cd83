"""The nearest settings of other frameworks' packing: the same token budget, no prefix trees."""

from __future__ import annotations

from tuning.plan.plan import TuningPlan


def trl_config(plan: TuningPlan) -> str:
    """TRL's ``SFTConfig`` fields: best-fit packing of whole rows to the same length."""
    return (
        "# SFTConfig; rows longer than max_length are cut, where AReaL would stop\n"
        "packing: true\n"
        "packing_strategy: bfd\n"
        f"max_length: {plan.max_tokens_per_mb}\n"
        "per_device_train_batch_size: 1\n"
        f"gradient_checkpointing: {str(plan.gradient_checkpointing).lower()}\n"
    )


def verl_config(plan: TuningPlan) -> str:
    """verl's overrides: micro-batches filled to the same token budget, flat."""
    cap = plan.max_tokens_per_mb
    lines = [
        "actor_rollout_ref.model.use_remove_padding=True",
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={cap}",
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
        f"actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu={cap}",
    ]
    if plan.prompts_per_step:
        lines.append(f"data.train_batch_size={plan.prompts_per_step}")
        size = -(-plan.prompts_per_step // plan.ppo_n_minibatches)
        lines.append(f"actor_rollout_ref.actor.ppo_mini_batch_size={size}")
    if plan.samples_per_prompt:
        lines.append(f"actor_rollout_ref.rollout.n={plan.samples_per_prompt}")
    if plan.gradient_checkpointing:
        lines.append("actor_rollout_ref.model.enable_gradient_checkpointing=True")
    body = " \\\n  ".join(lines)
    return f"# append to: python -m verl.trainer.main_ppo\n  {body}\n"
