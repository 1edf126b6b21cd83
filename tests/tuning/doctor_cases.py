"""For each rule on a config's settings: what triggers it, and a neighbour that does not."""

from __future__ import annotations

CAP = "max_tokens_per_mb: 8192   # by hand"
VL = "Qwen/Qwen2.5-VL-3B-Instruct"
MODEL = "path: Qwen/Qwen3-1.7B"
FSDP = 'backend: "fsdp:d4"'
TREE = "enable_tree_training: true"
KL = "kl_ctl: 0.0"
ENV = "NCCL_DEBUG: WARN"
REF = (
    "my_own:",
    "ref:\n  backend: ${actor.backend}\n  path: ${actor.path}\n  experiment_name: run\n"
    "  trial_name: t0\n  mb_spec: {max_tokens_per_mb: 8192}\nmy_own:",
)
CRITIC = (
    "my_own:",
    "critic:\n  backend: fsdp:d4\n  experiment_name: run\n  trial_name: t0\n"
    f"  mb_spec: {{max_tokens_per_mb: 8192}}\n  {TREE}\nmy_own:",
)
FORKED = "scheduling_strategy: {type: colocation, target: actor, fork: false}"
Change = tuple[str, str]


def backend(text: str) -> Change:
    return FSDP, f'backend: "{text}"'


def actor(line: str) -> Change:
    return TREE, f"{TREE}\n  {line}"


CASES: list[tuple[str, str, str, list[Change], list[Change]]] = [
    # rule, severity, words of AReaL or of the problem, what triggers it, its neighbour
    ("cap-unset", "fails at first batch", "positive value", [(CAP, "n_mbs: 1")], []),
    ("cap-unset", "fails at first batch", "positive value", [(CAP, "max_tokens_per_mb: 0")], []),
    (
        "cap-alignment",
        "fails at first batch",
        "must be a multiple of 128",
        [(CAP, "max_tokens_per_mb: 8000")],
        [(CAP, "max_tokens_per_mb: 8064")],
    ),
    (
        "cap-alignment",
        "fails at first batch",
        "must be a multiple of 384",
        [(CAP, "max_tokens_per_mb: 8192"), backend("megatron:d4t3")],
        [(CAP, "max_tokens_per_mb: 8448"), backend("megatron:d4t3")],
    ),
    (
        "pad-to-maximum",
        "fails at first batch",
        "No padding is not supported",
        [("pad_to_maximum: true", "pad_to_maximum: false")],
        [],
    ),
    (
        "cap-below-generation",
        "fails at first batch",
        "exceeds max_tokens_per_tree 1024",
        [(CAP, "max_tokens_per_mb: 1024")],
        [(CAP, "max_tokens_per_mb: 2048")],
    ),
    (
        "cap-below-generation",
        "fails at first batch",
        "Sequence length 4096",
        [(CAP, "max_tokens_per_mb: 2048"), ("my_own:", "econfig:")],
        [(CAP, "max_tokens_per_mb: 4096"), ("my_own:", "econfig:")],
    ),
    (
        "ignored-by-trees",
        "no effect",
        "not effective",
        [(CAP, f"{CAP}\n    granularity: 2")],
        [(CAP, f"{CAP}\n    granularity: 1")],
    ),
    ("backend", "fails at start", "names no engine", [backend("d4")], []),
    (
        "parallelism",
        "fails at start",
        "sp_size > 1",
        [backend("fsdp:d2c2")],
        [backend("fsdp:d2t2")],
    ),
    (
        "parallelism",
        "fails at start",
        "does not support context parallelism",
        [backend("megatron:d2c2")],
        [backend("megatron:d2p2")],
    ),
    (
        "parallelism",
        "fails at start",
        "pp > 1",
        [backend("archon:d2p2"), actor("archon: {enable_compile: true}")],
        [backend("archon:d2t2"), actor("archon: {enable_compile: true}")],
    ),
    (
        "backend",
        "fails at start",
        "FSDP backend only supports",
        [backend("fsdp:d2p2")],
        [backend("fsdp:d2t2")],
    ),
    (
        "megatron-pipeline",
        "slow",
        "fewer than 4 trees",
        [backend("megatron:d2p2")],
        [backend("megatron:d4")],
    ),
    (
        "megatron-pipeline",
        "fails at first batch",
        "Virtual pipeline",
        [backend("megatron:d2p2"), actor("megatron: {virtual_pipeline_parallel_size: 2}")],
        [backend("megatron:d4"), actor("megatron: {virtual_pipeline_parallel_size: 1}")],
    ),
    (
        "archon-compile",
        "fails at first batch",
        "16 heads × 8,192² × 4 bytes = 4 GiB",
        [backend("archon:d4")],
        [backend("archon:d4"), actor("archon: {enable_compile: true}")],
    ),
    (
        "archon-compile",
        "fails at first batch",
        "FP8",
        [
            backend("archon:d4"),
            actor("archon: {enable_compile: true, fp8_config: {mode: blockwise}}"),
        ],
        [
            backend("archon:d4"),
            actor("archon: {enable_compile: true, fp8_config: {mode: disabled}}"),
        ],
    ),
    (
        "archon-compile",
        "fails at first batch",
        "ZBVZeroBubble",
        [
            backend("archon:d4"),
            actor("archon: {enable_compile: true, pp_schedule: ZBVZeroBubble}"),
        ],
        [backend("archon:d4"), actor("archon: {enable_compile: true, pp_schedule: 1F1B}")],
    ),
    (
        "attention-implementation",
        "silently wrong",
        "attn_impl is sdpa",
        [actor("attn_impl: sdpa")],
        [actor("attn_impl: flash_attention_3")],
    ),
    (
        "wrong-value",
        "fails at start",
        "attn_impl must be one of",
        [actor("attn_impl: flash")],
        [actor("attn_impl: kernels-community/flash-attn")],
    ),
    (
        "megatron-bridge",
        "fails at start",
        "bridge_type='megatron-bridge'",
        [backend("megatron:d4"), actor("megatron: {bridge_type: megatron-bridge}")],
        [backend("megatron:d4"), actor("megatron: {bridge_type: mbridge}")],
    ),
    (
        "megatron-lora",
        "fails at start",
        "LoRA",
        [backend("megatron:d4"), actor("use_lora: true")],
        [actor("use_lora: true")],
    ),
    (
        "archon-lora",
        "silently wrong",
        "all weights",
        [backend("archon:d4"), actor("use_lora: true")],
        [backend("archon:d4")],
    ),
    (
        "key-value-cache",
        "slow",
        "cache stays on",
        [("gradient_checkpointing: true", "gradient_checkpointing: false")],
        [],
    ),
    ("megatron-mask", "slow", "dense mask", [backend("megatron:d4")], [backend("fsdp:d4")]),
    ("vision-model", "silently wrong", "mRoPE", [(MODEL, f"path: {VL}")], []),
    (
        "vision-model",
        "fails at first batch",
        "PytorchFlexAttention",
        [(MODEL, f"path: {VL}"), backend("megatron:d4")],
        [backend("megatron:d4")],
    ),
    (
        "hybrid-attention",
        "silently wrong",
        "linear-attention",
        [(MODEL, "path: Qwen/Qwen3-Next-80B-A3B")],
        [(MODEL, "path: Qwen/Qwen3-4B")],
    ),
    (
        "hybrid-attention",
        "silently wrong",
        "sliding-window",
        [(MODEL, "path: google/gemma-2-9b")],
        [(MODEL, "path: Qwen/Qwen2.5-7B")],
    ),
    (
        "hybrid-attention",
        "silently wrong",
        "latent",
        [(MODEL, "path: deepseek-ai/DeepSeek-V3")],
        [(MODEL, "path: deepseek-ai/DeepSeek-R1-Distill-Qwen-7B")],
    ),
    (
        "archon-model",
        "silently wrong",
        "plain causal",
        [(MODEL, "path: Qwen/Qwen3.5-4B"), backend("archon:d4")],
        [backend("archon:d4")],
    ),
    (
        "archon-model",
        "fails at start",
        "no model of type llama",
        [(MODEL, "path: meta-llama/Llama-3.1-8B"), backend("archon:d4")],
        [(MODEL, "path: meta-llama/Llama-3.1-8B")],
    ),
    (
        "mixture-of-experts",
        "slow",
        "mixture of experts",
        [(MODEL, "path: Qwen/Qwen3-30B-A3B")],
        [(MODEL, "path: Qwen/Qwen3-32B")],
    ),
    ("critic", "fails at first batch", "critic model", [actor("is_critic: true")], []),
    (
        "critic",
        "fails at first batch",
        "critic model",
        [CRITIC],
        [(CRITIC[0], CRITIC[1].replace("true", "false"))],
    ),
    (
        "sequence-level",
        "fails at first batch",
        "cu_seqlens is required for 1D tensors",
        [actor("importance_sampling_level: sequence")],
        [actor("importance_sampling_level: token")],
    ),
    (
        "sequence-level",
        "fails at first batch",
        "sequence-level filtering",
        [actor("use_decoupled_loss: true\n  rejection_sampling: {level: sequence}")],
        [actor("use_decoupled_loss: true\n  rejection_sampling: {level: token}")],
    ),
    (
        "batch-divides",
        "fails at first batch",
        "divisible by K",
        [("batch_size: 32", "batch_size: 30")],
        [("batch_size: 32", "batch_size: 28")],
    ),
    (
        "batch-divides",
        "fails at start",
        "divisible by world_size(4)",
        [("batch_size: 32", "batch_size: 30"), (ENV, 'AREAL_SPMD_MODE: "1"')],
        [(ENV, 'AREAL_SPMD_MODE: "1"')],
    ),
    (
        "dynamic-batch",
        "slow",
        "dynamic_bs",
        [("my_own:", "dynamic_bs: true\nmy_own:")],
        [("my_own:", "dynamic_bs: true\nmy_own:"), backend("fsdp:d1t4")],
    ),
    (
        "rows-per-minibatch",
        "fails at first batch",
        "smaller than min_groups 100",
        [("ppo_n_minibatches: 1", "ppo_n_minibatches: 100")],
        [("ppo_n_minibatches: 1", "ppo_n_minibatches: 64")],
    ),
    (
        "minibatches-scatter",
        "slow",
        "dealt to different minibatches",
        [("ppo_n_minibatches: 1", "ppo_n_minibatches: 2")],
        [],
    ),
    (
        "minibatches-scatter",
        "slow",
        "AReaL's default",
        [("  ppo_n_minibatches: 1\n", "")],
        [],
    ),
    (
        "engine-beside-trees",
        "slow",
        "without trees",
        [(KL, "kl_ctl: 0.1"), REF],
        [REF],
    ),
    (
        "engine-beside-trees",
        "fails at first batch",
        "pre-created BlockMask",
        [(KL, "kl_ctl: 0.1"), REF, (ENV, 'AREAL_SPMD_MODE: "1"')],
        [REF, (ENV, 'AREAL_SPMD_MODE: "1"')],
    ),
    (
        "pad-to-maximum",
        "fails at first batch",
        "ref: pad_to_maximum is false",
        [(KL, "kl_ctl: 0.1"), (REF[0], REF[1].replace("my_own", f"  {TREE}\nmy_own"))],
        [
            (KL, "kl_ctl: 0.1"),
            (REF[0], REF[1].replace("my_own", f"  {TREE}\n  pad_to_maximum: true\nmy_own")),
        ],
    ),
    (
        "triton-flag",
        "silently wrong",
        "drops gradients",
        [(ENV, 'AREAL_USE_TRITON_TREE_ATTN: "1"')],
        [(ENV, 'AREAL_USE_TRITON_TREE_ATTN: "0"')],
    ),
    (
        "triton-flag",
        "no effect",
        "does not read it",
        [(ENV, 'AREAL_USE_TRITON_TREE_ATTN: "1"'), backend("megatron:d4")],
        [(ENV, 'AREAL_USE_TRITON_TREE_ATTN: "0"'), backend("megatron:d4")],
    ),
    (
        "number-in-environment",
        "fails at start",
        "BLOCK_SIZE",
        [(ENV, "AREAL_FLEX_ATTENTION_BLOCK_SIZE: big")],
        [(ENV, 'AREAL_FLEX_ATTENTION_BLOCK_SIZE: "64"')],
    ),
    (
        "static-shapes",
        "slow",
        "compiled for each",
        [(ENV, 'AREAL_DISABLE_FLEX_ATTENTION_DYNAMIC: "1"')],
        [(ENV, 'AREAL_DISABLE_FLEX_ATTENTION_DYNAMIC: "0"')],
    ),
    (
        "unknown-key",
        "fails at start",
        "Key 'enable_tree_trainin' not in 'PPOActorConfig'",
        [actor("enable_tree_trainin: true")],
        [],
    ),
    (
        "wrong-type",
        "fails at start",
        "'8k' of type 'str' could not be converted to Integer",
        [(CAP, "max_tokens_per_mb: 8k")],
        [],
    ),
    (
        "wrong-type",
        "fails at start",
        "Write actor.mb_spec.max_tokens_per_mb: 8192.",
        [(CAP, "max_tokens_per_mb: 8192.0")],
        [],
    ),
    (
        "wrong-type",
        "fails at start",
        "not a valid bool",
        [("pad_to_maximum: true", "pad_to_maximum: maybe")],
        [("pad_to_maximum: true", "pad_to_maximum: yes")],
    ),
    ("wrong-type", "fails at start", "is empty", [actor("temperature: null")], []),
    (
        "quoted-number",
        "no effect",
        "reads it as 8192",
        [(CAP, 'max_tokens_per_mb: "8192"')],
        [],
    ),
    ("missing-value", "fails at start", "train_dataset.type", [("  type: rl\n", "")], []),
    (
        "number-in-environment",
        "fails at start",
        "invalid literal for int()",
        [(ENV, 'AREAL_USE_TRITON_TREE_ATTN: "true"')],
        [(ENV, 'AREAL_FLEX_ATTENTION_BLOCK_SIZE: " +128 "')],
    ),
    (
        "engine-beside-trees",
        "fails at first batch",
        "neither with trees nor without",
        [
            (CRITIC[0], CRITIC[1].replace(TREE, FORKED)),
        ],
        [(CRITIC[0], CRITIC[1].replace(TREE, FORKED.replace("false", "true")))],
    ),
    (
        "cap-below-generation",
        "fails at first batch",
        "is larger than capacity",
        [(CAP, "max_tokens_per_mb: 1024"), (TREE, "enable_tree_training: false")],
        [(TREE, "enable_tree_training: false")],
    ),
    (
        "cap-below-generation",
        "fails at first batch",
        "32,768",
        [("  max_tokens: 4096\n", ""), ("  max_length: 1024\n", "")],
        [("  max_tokens: 4096\n", "")],
    ),
    ("backend", "fails at start", "cannot divide world size", [backend("megatron:d2e4")], []),
    (
        "server-backend",
        "fails at start",
        "expected sglang or vllm",
        [('"sglang:d4"', '"fsdp:d4"')],
        [('"sglang:d4"', '"vllm:d2t2"')],
    ),
    (
        "idle-backend",
        "no effect",
        "Not read while",
        [(REF[0], REF[1].replace("${actor.backend}", "fsdp:p2"))],
        [REF],
    ),
    ("interpolation", "fails at start", "nosuch", [(MODEL, "path: ${actor.nosuch}")], []),
    ("wrong-value", "fails at start", "must be one of", [actor("dtype: float64")], []),
    (
        "undocumented-value",
        "no effect",
        "help knows",
        [actor("kl_estimator: k9")],
        [actor("kl_estimator: k3")],
    ),
    (
        "joined-values",
        "fails at start",
        "upper must be > 1.0",
        [actor("rejection_sampling: {metric: ratio, upper: 0.5}")],
        [actor("rejection_sampling: {metric: kl_k1, upper: 0.5}")],
    ),
    (
        "start-checks",
        "fails at start",
        "enable_offload must be True",
        [actor("offload: true")],
        [actor("offload: true"), ("tokenizer_path:", "enable_offload: true\ntokenizer_path:")],
    ),
    (
        "weight-update-mode",
        "fails at start",
        "Invalid weight update mode",
        [actor("weight_update_mode: nccl")],
        [actor("weight_update_mode: disk")],
    ),
    (
        "gpus",
        "fails at start",
        "8 GPUs are asked for (actor 4 + rollout 4)",
        [("my_own:", "cluster: {n_nodes: 1, n_gpus_per_node: 4}\nmy_own:")],
        [("my_own:", "cluster: {n_nodes: 2, n_gpus_per_node: 4}\nmy_own:")],
    ),
    (
        "engine-settings",
        "fails at start",
        "not supported with VLM",
        [(MODEL, f"path: {VL}"), backend("megatron:d2c2"), (TREE, "enable_tree_training: false")],
        [(MODEL, f"path: {VL}"), backend("megatron:d4"), (TREE, "enable_tree_training: false")],
    ),
    (
        "engine-settings",
        "fails at start",
        "only supports 'adam'",
        [actor("optimizer: {type: sgd}\n  fsdp: {per_layer_optim_step: true}")],
        [actor("optimizer: {type: adam}\n  fsdp: {per_layer_optim_step: true}")],
    ),
    (
        "flat-attention",
        "silently wrong",
        "see each other",
        [(TREE, "attn_impl: sdpa")],
        [(TREE, "attn_impl: flash_attention_3")],
    ),
]
