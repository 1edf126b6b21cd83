"""A causal LM over packed trees: layers, log-probabilities, losses, one step, and its proof."""

from kernels.model.collate import TreeCollator, padded_logprobs, tree_logprobs
from kernels.model.context import TreeContext, use_trees
from kernels.model.equivalence import check_equivalence, sample_trees
from kernels.model.layers import decoder_layers, own_embedding
from kernels.model.logprobs import CHUNK_SIZE, PackedLogprobs, Transitions, head_logprobs
from kernels.model.losses import Normalisation, dpo_loss, policy_loss, sft_loss, token_weights
from kernels.model.micro_batches import (
    Inputs,
    MicroBatch,
    batch_mask,
    flat_batches,
    padded_batches,
    row_layout,
    tree_batches,
)
from kernels.model.model import DType, TreeLM, build_model
from kernels.model.optimizer import StepOptimizer, adamw
from kernels.model.presets import PRESETS, ModelNotFound, resolve_config
from kernels.model.refusals import UnsupportedModel, check_config, output_head
from kernels.model.step import (
    LogpResult,
    StepData,
    StepOptions,
    StepOutOfMemory,
    StepResult,
    accumulate_gradients,
    compute_logp,
    out_of_memory_at,
    repeats_within,
    train_step,
)

__all__ = [
    "CHUNK_SIZE",
    "PRESETS",
    "DType",
    "Inputs",
    "LogpResult",
    "MicroBatch",
    "ModelNotFound",
    "Normalisation",
    "PackedLogprobs",
    "StepData",
    "StepOptimizer",
    "StepOptions",
    "StepOutOfMemory",
    "StepResult",
    "Transitions",
    "TreeCollator",
    "TreeContext",
    "TreeLM",
    "UnsupportedModel",
    "accumulate_gradients",
    "adamw",
    "batch_mask",
    "build_model",
    "check_config",
    "check_equivalence",
    "compute_logp",
    "decoder_layers",
    "dpo_loss",
    "flat_batches",
    "head_logprobs",
    "out_of_memory_at",
    "output_head",
    "own_embedding",
    "padded_batches",
    "padded_logprobs",
    "policy_loss",
    "repeats_within",
    "resolve_config",
    "row_layout",
    "sample_trees",
    "sft_loss",
    "token_weights",
    "train_step",
    "tree_batches",
    "tree_logprobs",
    "use_trees",
]
