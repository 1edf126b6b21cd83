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

saver: &files
  experiment_name: ${experiment_name}
  trial_name: ${trial_name}
  fileroot: /data
evaluator: *files
recover: *files
stats_logger: *files

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

_FRAME = """\
experiment_name: run
trial_name: t0
tokenizer_path: ${actor.path}
cluster: {n_nodes: 1, n_gpus_per_node: 8, fileroot: /data, name_resolve: {type: nfs}}
saver:
  experiment_name: ${experiment_name}
  trial_name: ${trial_name}
  fileroot: ${cluster.fileroot}
  freq_epochs: 1
evaluator: {experiment_name: run, trial_name: t0, fileroot: /data}
recover: {mode: disabled, experiment_name: run, trial_name: t0, fileroot: /data, retries: 3}
stats_logger: {experiment_name: run, trial_name: t0, fileroot: /data, wandb: {mode: disabled}}
train_dataset: {batch_size: 32, path: data, type: KIND, max_length: 1024}
"""
_ENGINE = """\
  backend: "fsdp:d4"
  experiment_name: ${experiment_name}
  trial_name: ${trial_name}
  path: Qwen/Qwen3-1.7B
  dtype: bfloat16
  mb_spec: {max_tokens_per_mb: 8192}
  optimizer: {type: adam, lr: 1.0e-5}
  scheduling_spec: [{task_type: worker, gpu: 1, env_vars: {NCCL_DEBUG: WARN}}]
"""
_TEACHER = """\
critic:
  backend: "fsdp:d4"
  experiment_name: run
  trial_name: t0
teacher:
  engine_type: rollout
  rollout: {backend: "sglang:d1", experiment_name: run, trial_name: t0}
"""
WHOLE = {
    "grpo": BASE,
    "ppo": _FRAME.replace("KIND", "rl")
    + 'rollout: {backend: "sglang:d4", experiment_name: run, trial_name: t0}\n'
    + "gconfig: {n_samples: 4, max_new_tokens: 512, max_tokens: 2048}\n"
    + f"actor:\n{_ENGINE}  kl_ctl: 0.1\n  reward_norm: {{mean_level: group, group_size: 4}}\n"
    + f"ref:\n{_ENGINE}{_TEACHER}"
    + "sglang: {model_path: x, context_length: 4096}\nvllm: {model: x}\n"
    + "valid_dataset: {path: data, type: rl, batch_size: 8}\n"
    + "perf_tracer: {experiment_name: run, trial_name: t0, fileroot: /data}\n",
    "sft": _FRAME.replace("KIND", "sft") + f"actor:\n{_ENGINE}",
    "dpo": _FRAME.replace("KIND", "dpo") + f"actor:\n{_ENGINE}  beta: 0.1\nref:\n{_ENGINE}",
    "rw": _FRAME.replace("KIND", "rw") + f"actor:\n{_ENGINE}  is_critic: true\n",
}
"""Whole configs of each of AReaL's trainers, which it takes as they are."""
