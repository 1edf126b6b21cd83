"""What each engine can and cannot do with trees."""

from __future__ import annotations

from collections.abc import Iterator

from tuning.areal.backend import Backend, BackendError
from tuning.doctor.rules.base import Case, Found, rule

_GIB = 2**30
_ZERO_BUBBLE = ("InterleavedZeroBubble", "ZBVZeroBubble")
_RIGHT_ATTENTION = ("flash_attention_2", "flash_attention_3")
_WRONG_ATTENTION = ("sdpa", "eager", "flex_attention")


@rule("backend", "fails at start", "api/alloc_mode.py", always=True)
def backend(case: Case) -> Iterator[Found]:
    text = case.actor("backend")
    path = case.path("backend")
    if not isinstance(text, str) or text == "???":
        if text == "???" and case.config.has("allocation_mode"):
            return
        if text == "???":
            yield Found(
                f"{path} is missing; AReaL must know engine and ranks.",
                f"Set {path}, such as fsdp:d8.",
                says="Missing mandatory value: backend",
                path=path,
            )
        return
    try:
        Backend.parse(text)
    except BackendError as error:
        yield Found(f"{path}: {error}", "Correct the string.", path=path)


@rule("parallelism", "fails at start", "engine and api/alloc_mode.py of each engine")
def parallelism(case: Case) -> Iterator[Found]:
    if case.backend is None:
        return
    path, b = case.path("backend"), case.backend
    if b.engine == "fsdp":
        if b.context > 1:
            yield Found(
                f"Sequence parallelism of {b.context} (c{b.context}) cannot be used with trees.",
                f"Take c{b.context} out of {path} and give the ranks to d.",
                says="Tree training currently cannot be enabled with sp_size > 1.",
                path=path,
                when="when the run starts, after the model is loaded",
            )
    elif b.engine == "megatron":
        if b.context > 1:
            yield Found(
                f"Context parallelism of {b.context} (c{b.context}) cannot be used with trees.",
                f"Take c{b.context} out of {path} and give the ranks to d.",
                says="PytorchFlexAttention does not support context parallelism.",
                path=path,
            )
    elif b.pipeline > 1 or b.context > 1:
        yield Found(
            f"Archon has p{b.pipeline} and c{b.context}; trees need both to be 1.",
            f"Write {path} with d and t only.",
            says="Tree training with pipeline parallelism (pp > 1) or context parallelism "
            "(cp > 1) is currently not supported.",
            path=path,
        )


@rule("fsdp-parallelism", "fails at start", "api/alloc_mode.py:280", always=True)
def fsdp_parallelism(case: Case) -> Iterator[Found]:
    b = case.backend
    if b is not None and b.engine == "fsdp" and (b.pipeline > 1 or b.expert > 1):
        yield Found(
            f"FSDP has p{b.pipeline} and e{b.expert}; it knows d, t and c only.",
            f"Write {case.path('backend')} without p and e, or use megatron.",
            says="FSDP backend only supports data/tensor/context parallelism.",
            path=case.path("backend"),
        )


@rule("megatron-pipeline", "slow", "engine/megatron_engine.py, _prepare_mb_list")
def megatron_pipeline(case: Case) -> Iterator[Found]:
    b = case.backend
    if b is None or b.engine != "megatron":
        return
    virtual = case.actor("megatron.virtual_pipeline_parallel_size")
    if isinstance(virtual, int) and virtual > 1:
        path = case.path("megatron.virtual_pipeline_parallel_size")
        yield Found(
            "Virtual pipeline stages need a number of micro-batches that divides; the number of "
            "trees follows the data.",
            f"Set {path} to 1.",
            path=path,
            fix={path: 1},
            severity="fails at first batch",
            when="at a batch whose number of trees does not divide (not tried by us)",
        )
    elif b.pipeline > 1:
        yield Found(
            f"Pipeline of {b.pipeline}: with fewer than {2 * b.pipeline} trees in a pass, stages "
            "stand idle.",
            f"Keep at least {2 * b.pipeline} trees per rank and pass: a smaller cap, or fewer "
            "data-parallel ranks.",
            path=case.path("backend"),
            when="in every step with fewer trees than that; AReaL warns",
        )


@rule("archon-compile", "fails at first batch", "api/cli_args.py (#1278), archon_utils.py")
def archon_compile(case: Case) -> Iterator[Found]:
    if case.engine != "archon":
        return
    path = case.path("archon.enable_compile")
    if case.actor("archon.fp8_config.mode") == "blockwise":
        yield Found(
            "FP8 switches torch.compile off, and without it attention builds the whole score "
            f"matrix{_score_matrix(case)}.",
            f"Set {case.path('archon.fp8_config.mode')} to disabled"
            + ("" if case.actor("archon.enable_compile") else f", and {path} to true")
            + ".",
            says="FP8 blockwise training is incompatible with torch.compile. Disabling "
            "torch.compile.",
            path=case.path("archon.fp8_config.mode"),
            fix={case.path("archon.fp8_config.mode"): "disabled", path: True},
        )
        return
    schedule = case.actor("archon.pp_schedule")
    if schedule in _ZERO_BUBBLE:
        yield Found(
            f"pp_schedule {schedule} switches torch.compile off, and without it attention builds "
            f"the whole score matrix{_score_matrix(case)}.",
            f"Set {case.path('archon.pp_schedule')} to 1F1B, and {path} to true.",
            says=f"{schedule} is incompatible with torch.compile. Disabling torch.compile.",
            path=case.path("archon.pp_schedule"),
            fix={case.path("archon.pp_schedule"): "1F1B", path: True},
        )
        return
    if case.actor("archon.enable_compile") is False:
        default = "" if case.config.has(path) else " by default (since 1.0.4)"
        yield Found(
            f"Archon runs without torch.compile{default}: attention then builds the whole score "
            f"matrix{_score_matrix(case)}.",
            f"Set {path} to true.",
            says="flex_attention called without torch.compile() - this will use an unfused "
            "implementation that materializes the full scores matrix",
            path=path,
            when="out of memory in the first forward pass, unless the matrix fits",
            fix={path: True},
        )


def _score_matrix(case: Case) -> str:
    """The size of one score matrix, where heads and cap are known."""
    if case.cap is None or case.model is None or not case.model.heads:
        return ", heads × tokens² × 4 bytes a layer"
    tensor = 1 if case.backend is None else case.backend.tensor
    heads = -(-case.model.heads // tensor)
    gib = heads * case.cap**2 * 4 / _GIB
    return f": {heads} heads × {case.cap:,}² × 4 bytes = {gib:,.0f} GiB for one, in each layer"


@rule("attention-implementation", "silently wrong", "models/tree_attn/module_fsdp.py")
def attention_implementation(case: Case) -> Iterator[Found]:
    kind = case.actor("attn_impl")
    if case.engine not in ("fsdp", None) or not isinstance(kind, str):
        return
    path = case.path("attn_impl")
    if kind in _WRONG_ATTENTION:
        yield Found(
            f"attn_impl is {kind}; only flash attention is replaced by tree attention, so every "
            "branch would see its siblings.",
            f"Set {path} to flash_attention_2.",
            path=path,
            fix={path: "flash_attention_2"},
        )


@rule("unknown-attention", "fails at start", "api/cli_args.py:1252", always=True)
def unknown_attention(case: Case) -> Iterator[Found]:
    kind = case.actor("attn_impl")
    if not isinstance(kind, str) or kind in (*_RIGHT_ATTENTION, *_WRONG_ATTENTION):
        return
    if "/" not in kind:
        path = case.path("attn_impl")
        yield Found(
            f"attn_impl is {kind!r}, which is no implementation.",
            f"Set {path} to flash_attention_2.",
            says="attn_impl must be one of ('eager', 'sdpa', 'flash_attention_2', "
            "'flash_attention_3', 'flex_attention') or a Hugging Face kernels repo ID",
            path=path,
            fix={path: "flash_attention_2"},
        )


@rule("megatron-bridge", "fails at start", "engine/megatron_engine.py:566")
def megatron_bridge(case: Case) -> Iterator[Found]:
    path = case.path("megatron.bridge_type")
    if (
        case.engine == "megatron"
        and case.actor("megatron.bridge_type") == "megatron-bridge"
        and case.actor("use_lora") is not True
    ):
        yield Found(
            "bridge_type is megatron-bridge; trees need mbridge.",
            f"Set {path} to mbridge.",
            says="Tree training is not supported with bridge_type='megatron-bridge'.",
            path=path,
            fix={path: "mbridge"},
        )


@rule("megatron-lora", "fails at start", "engine/megatron_engine.py:327 and :566")
def megatron_lora(case: Case) -> Iterator[Found]:
    if case.engine == "megatron" and case.actor("use_lora") is True:
        bridged = case.actor("megatron.bridge_type") == "megatron-bridge"
        yield Found(
            "LoRA on Megatron needs megatron-bridge, and trees need mbridge: they cannot meet.",
            "Train LoRA with trees on fsdp, or keep Megatron without trees.",
            says="Tree training is not supported with bridge_type='megatron-bridge'."
            if bridged
            else "MegatronEngine LoRA POC currently only supports bridge_type='megatron-bridge'.",
            path=case.path("use_lora"),
        )


@rule("archon-lora", "silently wrong", "experimental/engine/archon_engine.py", always=True)
def archon_lora(case: Case) -> Iterator[Found]:
    if case.engine == "archon" and case.actor("use_lora") is True:
        yield Found(
            "use_lora is true, but Archon has no LoRA: it would train all weights.",
            "Use fsdp for LoRA, or set use_lora to false.",
            path=case.path("use_lora"),
            when="never: no error is raised, all weights are trained",
        )


@rule("megatron-chunked-head", "fails at start", "engine/megatron_engine.py (main), __init__")
def megatron_chunked_head(case: Case) -> Iterator[Found]:
    if case.engine != "megatron":
        return
    for name in ("enable_chunked_logits", "lm_head_loss_chunk_size"):
        if case.config.field(case.path(f"megatron.{name}"), case.version) is None:
            continue
        if case.actor(f"megatron.{name}"):
            path = case.path(f"megatron.{name}")
            yield Found(
                f"megatron.{name} is set; the chunked head is not available with trees.",
                f"Remove {path}.",
                says="AReaL LM Head does not support tree training",
                path=path,
                fix={path: False} if name == "enable_chunked_logits" else {},
            )


@rule("key-value-cache", "slow", "engine/fsdp_engine.py, tree path of _prepare_mb_inputs")
def key_value_cache(case: Case) -> Iterator[Found]:
    if case.engine != "fsdp" or case.actor("gradient_checkpointing") is not False:
        return
    m = case.model
    size = ""
    if case.cap and m is not None and m.layers and m.kv_heads:
        gib = 2 * m.layers * m.kv_heads * m.head_dim * case.cap * 2 / _GIB
        size = f", {gib:.1f} GiB for a tree of {case.cap:,} tokens"
    path = case.path("gradient_checkpointing")
    yield Found(
        f"Without gradient checkpointing the key-value cache stays on in training{size}.",
        f"Set {path} to true where memory is short.",
        path=path,
        fix={path: True},
    )


@rule("megatron-mask", "slow", "models/tree_attn/module_megatron.py (#889)")
def megatron_mask(case: Case) -> Iterator[Found]:
    if case.engine != "megatron" or case.cap is None:
        return
    gib = case.cap**2 / _GIB
    yield Found(
        f"Megatron keeps a dense mask of {case.cap:,}² bytes ({gib:.2f} GiB) a tree and rebuilds "
        "its block mask in every layer and recomputation.",
        "Nothing to set; measure the step, or use fsdp.",
        path=case.path("backend"),
    )
