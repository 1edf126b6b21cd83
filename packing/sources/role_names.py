"""Names that columns of rollout logs have, by the role they play there."""

from __future__ import annotations

MESSAGES = (
    "messages",
    "conversations",
    "conversation",
    "traj",
    "trajectory",
    "chat",
    "history",
    "dialog",
    "dialogue",
    "message_log",
    "chat_completions",
)
INPUT_IDS = ("input_ids", "token_ids", "tokens", "ids", "sequences")
PROMPT_IDS = ("prompt_token_ids", "prompt_ids", "prompt_tokens", "prompts")
COMPLETION_IDS = (
    "completion_ids",
    "completion_token_ids",
    "response_token_ids",
    "response_ids",
    "output_token_ids",
    "output_ids",
    "output_tokens",
    "completion_tokens",
    "response_tokens",
    "sampled_tokens",
    "responses",
)
# Members of a sample's object that hold its ids.
SAMPLE_IDS = ("token_ids", "output_ids", "completion_ids", "response_ids")
LOSS_MASK = (
    "loss_mask",
    "loss_masks",
    "masks",
    "labels",
    "response_mask",
    "completion_mask",
    "action_mask",
    "assistant_masks",
    "tool_mask",
    "env_mask",
)
ATTENTION = ("attention_mask", "prompt_mask")
PROMPT = (
    "prompt",
    "input_prompt",
    "full_prompt",
    "input",
    "prompts",
    "context",
    "input_text",
    "prompt_text",
)
QUESTION = ("question", "problem", "instruction", "query", "user_prompt", "user_message")
SAMPLED = (
    "completion",
    "completions",
    "response",
    "responses",
    "output",
    "outputs",
    "generation",
    "generations",
    "generated_text",
    "generated_texts",
    "generated_solution",
    "output_response",
    "samples",
    "sampled",
    "predictions",
    "rollouts",
    "candidates",
    "solutions",
)
# Names of columns that hold several samples each.
PLURAL = (
    "completions",
    "responses",
    "outputs",
    "generations",
    "generated_texts",
    "samples",
    "predictions",
    "rollouts",
    "candidates",
    "solutions",
)
ANSWERS = ("answer", "answers", "solution", "ground_truth", "target")
SAMPLE_TEXT = (
    "solution",
    "completion",
    "response",
    "output",
    "text",
    "generated_text",
    "content",
    "answer",
    "message",
)
GROUP = (
    "group",
    "group_id",
    "task_id",
    "problem_id",
    "prompt_id",
    "question_id",
    "example_id",
    "instance_id",
    "group_index",
    "uid",
)
# Some number every row by these.
ROW_OR_GROUP = ("task_id", "example_id", "instance_id", "uid")
# Numbers that set groups of different batches apart; inside a trajectory they count its turns.
STEP = ("step", "global_step", "training_step", "train_step")
TRAJECTORY = ("traj_id", "traj_uid", "trajectory_id", "episode_id", "rollout_id", "session_id")
REWARD = ("reward", "rewards", "score", "scores", "is_correct")
CONTENT = ("input_ids", "segments", "prompt", "question", "completion", "messages", "text")
