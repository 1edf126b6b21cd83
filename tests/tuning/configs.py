"""Configs in the shape of AReaL's published examples, made for tests."""

from __future__ import annotations

BASE = """\
# a GRPO run
experiment_name: run   # the name
trial_name: t0
tokenizer_path: ${actor.path}

gconfig:
  n_samples: 8
  max_new_tokens: 1024
  max_tokens: 4096

rollout:
  backend: "sglang:d4"
  experiment_name: ${experiment_name}
  trial_name: ${trial_name}

actor:
  backend: "fsdp:d4"
  experiment_name: ${experiment_name}
  trial_name: ${trial_name}
  path: Qwen/Qwen3-1.7B
  gradient_checkpointing: true
  mb_spec:
    max_tokens_per_mb: 8192   # by hand
  pad_to_maximum: true
  enable_tree_training: true
  kl_ctl: 0.0
  ppo_n_minibatches: 1
  scheduling_spec:
    - task_type: worker
      env_vars:
        NCCL_DEBUG: WARN

train_dataset:
  batch_size: 32
  path: data
  type: rl
  max_length: 1024

my_own:
  key: [1, 2]
"""


def config(*changes: tuple[str, str]) -> str:
    """BASE with each first string replaced by the second; it must stand there once."""
    text = BASE
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the base config"
        text = text.replace(old, new)
    return text


ENGINE = """\
experiment_name: e
trial_name: t
backend: "fsdp:d4"
path: Qwen/Qwen3-8B
mb_spec: {max_tokens_per_mb: 8192}
pad_to_maximum: true
enable_tree_training: true
gradient_checkpointing: true
ppo_n_minibatches: 1
"""
