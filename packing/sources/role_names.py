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
)
INPUT_IDS = ("input_ids", "token_ids", "tokens", "ids", "sequences")
PROMPT_IDS = ("prompt_token_ids", "prompt_ids", "prompts")
COMPLETION_IDS = (
    "completion_ids",
    "completion_token_ids",
    "response_token_ids",
    "response_ids",
    "output_token_ids",
    "output_ids",
    "responses",
)
LOSS_MASK = ("loss_mask", "labels", "response_mask", "completion_mask", "action_mask")
PROMPT = ("prompt", "input", "prompts", "context", "input_text", "prompt_text")
QUESTION = ("question", "problem", "instruction", "query")
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
    "samples",
    "sampled",
    "predictions",
)
ANSWERS = ("answer", "solution", "ground_truth", "target")
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
    "instance_id",
    "uid",
)
REWARD = ("reward", "rewards", "score", "scores", "is_correct")
CONTENT = ("input_ids", "prompt", "question", "completion", "messages", "text")
