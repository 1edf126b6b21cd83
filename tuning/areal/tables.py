"""The tables that ``areal_schema`` reads: AReaL 1.0.4's config classes, and what other versions
change.

A line is ``name type = default``; ``?`` allows null, ``a|b`` are the choices, a type with a capital
letter is another table, ``any`` is not looked into.
"""

from __future__ import annotations

from typing import Any

_ENGINE = """
experiment_name str = ???
trial_name str = ???
backend str = ???
path str =
attn_impl str = flash_attention_2
use_kernels bool = false
init_from_scratch bool = false
is_critic bool = false
temperature float = 1.0
mb_spec MicroBatchSpec
pad_to_maximum bool = false
disable_dropout bool = false
gradient_checkpointing bool = false
dtype str = bfloat16
grad_reduce_dtype str = float32
optimizer_dtype str = float32
optimizer OptimizerConfig?
weight_update_mode str = xccl
fsdp FSDPEngineConfig
archon ArchonEngineConfig
megatron MegatronEngineConfig
offload bool = false
use_lora bool = false
lora_rank int = 32
lora_alpha int = 16
target_modules any
peft_type str = lora
enable_tree_training bool = false
scheduling_spec any
_version str = v1
admin_api_key str = areal-admin-key
log_level str = warning
request_timeout float = 3600.0
setup_timeout float = 3600.0
scheduling_strategy any
"""

_EXPERIMENT = """
experiment_name str = ???
trial_name str = ???
cluster any
allocation_mode str =
seed int = 1
enable_offload bool = false
total_train_epochs int = 1
total_train_steps int? = null
total_train_n_seqs int? = null
tokenizer_path str =
train_dataset TrainDatasetConfig
valid_dataset any
saver any
evaluator any
stats_logger any
perf_tracer any
memory_profiler any
recover any
sglang any
vllm any
scheduler any
"""

TABLES: dict[str, str] = {
    "MicroBatchSpec": """
n_mbs int? = 1
granularity int = 1
max_tokens_per_mb int? = null
n_mbs_divisor int = 1
packing_algorithm ffd|kk = ffd
""",
    "OptimizerConfig": """
type str = adam
lr float = 0.001
weight_decay float = 0.01
beta1 float = 0.9
beta2 float = 0.999
eps float = 1e-08
min_lr_ratio float = 0.0
lr_scheduler_type str = constant
warmup_steps_proportion float = 0.001
initial_loss_scale float = 4294967296
min_loss_scale float = 1.0
loss_scale_window float = 5
hysteresis int = 2
gradient_clipping float = 1.0
""",
    "FSDPEngineConfig": """
wrap_policy any
offload_params bool = false
memory_efficient_load bool = false
per_layer_optim_step bool = false
optim_step_prefetch_layers int = 1
shard_vision_across_sp bool = false
""",
    "ArchonFP8Config": """
mode disabled|blockwise = disabled
exclude_modules any
include_experts bool = false
use_triton bool = true
""",
    "ArchonEngineConfig": """
attn_type str = varlen
offload_params bool = false
enable_compile bool = false
ac_mode str = selective
selective_ac_option str = op
ac_memory_budget float = 0.5
ac_preserve_rng_state bool = false
ac_debug bool = false
pp_schedule str = Interleaved1F1B
pp_layers_per_stage int? = null
pp_first_stage_less_layers int = 1
pp_last_stage_less_layers int = 1
reshard_after_forward_policy default|always|never = default
fp8_config ArchonFP8Config
use_deterministic_algorithms bool = false
moe_router_dtype str? = fp32
""",
    "MegatronEngineConfig": """
wrap_with_ddp bool = true
use_torch_fsdp2 bool = false
use_custom_fsdp bool = false
ddp any
virtual_pipeline_parallel_size int = 1
overlap_param_gather_with_optimizer_step bool = false
use_precision_aware_optimizer bool = false
main_grads_dtype str = float32
main_params_dtype str = float32
exp_avg_dtype str = float32
exp_avg_sq_dtype str = float32
async_save bool = false
use_checkpoint_opt_param_scheduler bool = true
use_deterministic_algorithms bool = false
recompute_granularity str? = full
recompute_method str? = uniform
recompute_num_layers int? = 1
distribute_saved_activations bool? = null
recompute_modules any
moe_router_dtype str? = fp32
moe_shared_expert_overlap bool = false
moe_enable_deepep bool = false
moe_token_dispatcher_type str = alltoall
moe_permute_fusion bool = false
fp8_config any
bridge_type str = mbridge
use_mbridge_save bool = false
use_bridge_for_update_weights bool = false
""",
    "RejectionSamplingConfig": """
level token|sequence = token
action mask|clamp = mask
metric ratio|kl_k1|kl_k2|kl_k3 = ratio
agg sum|mean|max = mean
upper float = 5.0
lower float? = null
""",
    "TrainEngineConfig": _ENGINE,
    "PPOActorConfig": _ENGINE
    + """
ppo_n_minibatches int = 4
eps_clip float = 0.2
eps_clip_higher float? = null
c_clip float? = null
m2_threshold float? = null
reward_norm any
reward_scaling float = 1.0
reward_bias float = 0.0
reward_clip float = 20.0
overlong_reward_penalty bool = false
overlong_tokens int? = null
overlong_penalty_factor float? = null
mask_no_eos_with_zero bool = false
discount float = 1.0
gae_lambda float = 1.0
adv_norm any
kl_ctl float = 0.1
kl_estimator str = k1
use_sapo_loss bool = false
sapo_tau_pos float = 1.0
sapo_tau_neg float = 1.05
recompute_logprob bool = false
use_decoupled_loss bool = false
rejection_sampling RejectionSamplingConfig?
importance_sampling_level str = token
prox_logp_method str = recompute
log_agent_stats bool = false
log_agent_stats_keys any
max_new_tokens int = 1024
""",
    "PPOCriticConfig": _ENGINE
    + """
ppo_n_minibatches int = 4
eps_clip float = 0.5
mask_no_eos_with_zero bool = false
""",
    "DPOEngineConfig": _ENGINE
    + """
beta float = 0.1
loss_type str = sigmoid
""",
    "TrainDatasetConfig": """
split str = train
path str = ???
type str = ???
batch_size int = 1
shuffle bool = true
pin_memory bool = false
num_workers int = 0
num_dataset_workers int = 1
drop_last bool = true
max_length int? = null
dataset_kwargs any
scheduling_spec any
setup_timeout float = 120.0
""",
    "GenerationHyperparameters": """
n_samples int = 1
max_new_tokens int = 16384
min_new_tokens int = 0
max_tokens int = 32768
greedy bool = false
top_p float = 1.0
top_k int = 100000000
temperature float = 1.0
stop_token_ids any
ignore_eos bool = false
skip_special_tokens bool = true
stop any
frequency_penalty float = 0.0
lora_name str = default_lora
use_beam_search bool = false
""",
    "PPOConfig": _EXPERIMENT
    + """
gconfig GenerationHyperparameters
eval_gconfig any
rollout any
actor PPOActorConfig
ref PPOActorConfig?
critic PPOCriticConfig?
teacher any
dynamic_bs bool = false
""",
    "SFTConfig": _EXPERIMENT + "actor TrainEngineConfig\n",
    "RWConfig": _EXPERIMENT + "actor TrainEngineConfig\n",
    "DPOConfig": _EXPERIMENT + "actor DPOEngineConfig\nref DPOEngineConfig\n",
}

ADDED: dict[str, dict[str, str]] = {
    "1.0.3": {},
    "1.0.4": {},
    "main": {
        "OptimizerConfig": "warmup_steps any\n",
        "GenerationHyperparameters": "seed any\nreward_normalization any\n"
        "drop_incomplete_group any\n",
        "TrainEngineConfig": "logprobs_chunk_size int = 1024\nenable_delta_weight_update any\n"
        "weight_update_delta_method any\nweight_update_anchor_interval any\n"
        "workers_ready_timeout any\n",
        "PPOActorConfig": "gae_lambda any\ngae_lambda_kwargs any\ngae_timestep_unit any\n"
        "use_cispo_loss any\n",
        "RejectionSamplingConfig": "metric str = ratio\n",
        "MegatronEngineConfig": "enable_chunked_logits bool = false\n"
        "lm_head_loss_chunk_size any\nentropy_requires_grad any\nenable_fp32_lm_head any\n"
        "cross_entropy_loss_fusion any\nmoe_router_fusion any\nenable_mtp any\n"
        "disable_grad_buffers_cpu_backup any\n",
    },
    "tree_training_mode": {
        "TrainEngineConfig": "tree_training_mode disabled|sparse|dta = disabled\n"
        "dta_block_size int = 2048\n",
    },
}
REMOVED: dict[str, dict[str, tuple[str, ...]]] = {
    "1.0.3": {"MicroBatchSpec": ("packing_algorithm",)},
    "1.0.4": {},
    "main": {},
    "tree_training_mode": {},
}
DEFAULTS: dict[str, dict[tuple[str, str], Any]] = {
    "1.0.3": {("ArchonEngineConfig", "enable_compile"): True},
    "1.0.4": {},
    "main": {},
    "tree_training_mode": {},
}
ENGINES = ("TrainEngineConfig", "PPOActorConfig", "PPOCriticConfig", "DPOEngineConfig")
OPEN: dict[str, frozenset[str]] = {
    "1.0.3": frozenset(),
    "1.0.4": frozenset(),
    "main": frozenset({"MegatronEngineConfig"}),
    "tree_training_mode": frozenset({"MegatronEngineConfig"}),
}
