"""What each engine can and cannot do with trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tuning.areal.backend import Backend, BackendError, Server
from tuning.areal.schema import REQUIRED, Version
from tuning.doctor.rules.base import Case, Found, rule

_GIB = 2**30
_ZERO_BUBBLE = ("InterleavedZeroBubble", "ZBVZeroBubble")
_WRONG_ATTENTION = ("sdpa", "eager", "flex_attention")
_MBRIDGE_ONLY = "Tree training is not supported with bridge_type='megatron-bridge'."


@rule("backend", "fails at start", "api/alloc_mode.py", "engine")
def backend(case: Case) -> Iterator[Found]:
    yield from _unreadable(case, case.path("backend"), case.version)


@rule("server-backend", "fails at start", "api/alloc_mode.py; rl_trainer.py", "file")
def server_backend(case: Case) -> Iterator[Found]:
    teacher = case.get("teacher.engine_type") == "rollout"
    for path in ("rollout.backend", *(["teacher.rollout.backend"] if teacher else [])):
        if case.config.field(path, case.version) is not None and case.config.has(path):
            yield from _unreadable(case, path, None)


@rule("idle-backend", "no effect", "trainer/rl_trainer.py, _init_impl", "file")
def idle_backend(case: Case) -> Iterator[Found]:
    """A ref that no run makes while ``kl_ctl`` is 0: its string is not read then."""
    if case.config.has("ref.backend") and "ref" not in case.engines:
        for one in _unreadable(case, "ref.backend", case.version):
            problem = f"Not read while actor.kl_ctl is 0: {one.problem}"
            yield replace(one, problem=problem, when="as soon as actor.kl_ctl is above 0")


def _unreadable(case: Case, path: str, version: Version | None) -> Iterator[Found]:
    text = case.get(path)
    if not isinstance(text, str) or text == REQUIRED:
        return
    try:
        Server.parse(text) if version is None else Backend.parse(text, version)
    except BackendError as error:
        yield Found(f"{path}: {error}", "Correct the string.", says=error.says, path=path)


@rule("parallelism", "fails at start", "engine and api/alloc_mode.py of each engine")
def parallelism(case: Case) -> Iterator[Found]:
    b = case.backend
    if b is None or (b.context == 1 and (b.engine != "archon" or b.pipeline == 1)):
        return
    fewer = f"Take c{b.context} out of {case.path('backend')} and give the ranks to d."
    if b.engine == "fsdp":
        yield case.found(
            "backend",
            f"Sequence parallelism of {b.context} (c{b.context}) cannot be used with trees.",
            fewer,
            "Tree training currently cannot be enabled with sp_size > 1.",
            when="when the run starts, after the model is loaded",
        )
    elif b.engine == "megatron":
        yield case.found(
            "backend",
            f"Context parallelism of {b.context} (c{b.context}) cannot be used with trees.",
            fewer,
            "PytorchFlexAttention does not support context parallelism.",
        )
    else:
        yield case.found(
            "backend",
            f"Archon has p{b.pipeline} and c{b.context}; trees need both to be 1.",
            f"Write {case.path('backend')} with d and t only.",
            "Tree training with pipeline parallelism (pp > 1) or context parallelism "
            "(cp > 1) is currently not supported.",
        )


@rule("megatron-pipeline", "slow", "engine/megatron_engine.py, _prepare_mb_list", engine="megatron")
def megatron_pipeline(case: Case) -> Iterator[Found]:
    stages = 1 if case.backend is None else case.backend.pipeline
    virtual = case.setting("megatron.virtual_pipeline_parallel_size")
    if isinstance(virtual, int) and virtual > 1:
        yield case.found(
            "megatron.virtual_pipeline_parallel_size",
            "Virtual pipeline stages need a number of micro-batches that divides; the number of "
            "trees follows the data.",
            to=1,
            severity="fails at first batch",
            when="at a batch whose number of trees does not divide (not tried by us)",
        )
    elif stages > 1:
        yield case.found(
            "backend",
            f"Pipeline of {stages}: with fewer than {2 * stages} trees in a pass, stages stand "
            "idle.",
            f"Keep at least {2 * stages} trees per rank and pass: a smaller cap, or fewer "
            "data-parallel ranks.",
            when="in every step with fewer trees than that; AReaL warns",
        )


@rule(
    "archon-compile",
    "fails at first batch",
    "api/cli_args.py (#1278), archon_utils.py",
    engine="archon",
)
def archon_compile(case: Case) -> Iterator[Found]:
    compiles = case.path("archon.enable_compile")
    schedule = case.setting("archon.pp_schedule")
    off, key, to = "switches torch.compile off", "archon.pp_schedule", "1F1B"
    if case.setting("archon.fp8_config.mode") == "blockwise":
        what, key, to = f"FP8 {off}, and without it attention", "archon.fp8_config.mode", "disabled"
        says = "FP8 blockwise training is incompatible with torch.compile. Disabling torch.compile."
    elif schedule in _ZERO_BUBBLE:
        what = f"pp_schedule {schedule} {off}, and without it attention"
        says = f"{schedule} is incompatible with torch.compile. Disabling torch.compile."
    elif case.setting("archon.enable_compile") is False:
        default = "" if case.config.has(compiles) else " by default (since 1.0.4)"
        yield case.found(
            "archon.enable_compile",
            f"Archon runs without torch.compile{default}: attention then builds the whole score "
            f"matrix{_score_matrix(case)}.",
            says="flex_attention called without torch.compile() - this will use an unfused "
            "implementation that materializes the full scores matrix",
            to=True,
            when="out of memory in the first forward pass, unless the matrix fits",
        )
        return
    else:
        return
    path = case.path(key)
    compiled = to == "disabled" and case.setting("archon.enable_compile")
    yield Found(
        f"{what} builds the whole score matrix{_score_matrix(case)}.",
        f"Set {path} to {to}" + ("." if compiled else f", and {compiles} to true."),
        says=says,
        path=path,
        fix={path: to, compiles: True},
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
    kind = case.setting("attn_impl")
    if case.engine in ("fsdp", None) and kind in _WRONG_ATTENTION:
        yield case.found(
            "attn_impl",
            f"attn_impl is {kind}; only flash attention is replaced by tree attention, so every "
            "branch would see its siblings.",
            to="flash_attention_2",
        )


@rule("megatron-bridge", "fails at start", "engine/megatron_engine.py:566", engine="megatron")
def megatron_bridge(case: Case) -> Iterator[Found]:
    bridged = case.setting("megatron.bridge_type") == "megatron-bridge"
    if bridged and case.setting("use_lora") is not True:
        problem = "bridge_type is megatron-bridge; trees need mbridge."
        yield case.found("megatron.bridge_type", problem, says=_MBRIDGE_ONLY, to="mbridge")


@rule(
    "megatron-lora", "fails at start", "engine/megatron_engine.py:327 and :566", "trees", "megatron"
)
def megatron_lora(case: Case) -> Iterator[Found]:
    if case.setting("use_lora") is True:
        bridged = case.setting("megatron.bridge_type") == "megatron-bridge"
        yield case.found(
            "use_lora",
            "LoRA on Megatron needs megatron-bridge, and trees need mbridge: they cannot meet.",
            "Train LoRA with trees on fsdp, or keep Megatron without trees.",
            _MBRIDGE_ONLY
            if bridged
            else "MegatronEngine LoRA POC currently only supports bridge_type='megatron-bridge'.",
        )


@rule("archon-lora", "silently wrong", "experimental/engine/archon_engine.py", "engine", "archon")
def archon_lora(case: Case) -> Iterator[Found]:
    if case.setting("use_lora") is True:
        yield case.found(
            "use_lora",
            "use_lora is true, but Archon has no LoRA: it would train all weights.",
            "Use fsdp for LoRA, or set use_lora to false.",
            when="never: no error is raised, all weights are trained",
        )


@rule("megatron-chunked-head", "fails at start", "engine/megatron_engine.py (main), __init__")
def megatron_chunked_head(case: Case) -> Iterator[Found]:
    for name in ("enable_chunked_logits", "lm_head_loss_chunk_size"):
        key = f"megatron.{name}"
        known = case.config.field(case.path(key), case.version) is not None
        if case.engine == "megatron" and known and case.setting(key):
            yield case.found(
                key,
                f"{key} is set; the chunked head is not available with trees.",
                f"Remove {case.path(key)}.",
                "AReaL LM Head does not support tree training",
                to=False if name == "enable_chunked_logits" else None,
            )


@rule("key-value-cache", "slow", "engine/fsdp_engine.py, tree path of _prepare_mb_inputs")
def key_value_cache(case: Case) -> Iterator[Found]:
    trained = case.role == "actor" and case.engine == "fsdp"
    if not trained or case.setting("gradient_checkpointing") is not False:
        return
    m = case.model
    size = ""
    if case.cap and m is not None and m.layers and m.kv_heads:
        gib = 2 * m.layers * m.kv_heads * m.head_dim * case.cap * 2 / _GIB
        size = f", {gib:.1f} GiB for a tree of {case.cap:,} tokens"
    yield case.found(
        "gradient_checkpointing",
        f"Without gradient checkpointing the key-value cache stays on in training{size}.",
        f"Set {case.path('gradient_checkpointing')} to true where memory is short.",
        to=True,
    )


@rule("megatron-mask", "slow", "models/tree_attn/module_megatron.py (#889)", engine="megatron")
def megatron_mask(case: Case) -> Iterator[Found]:
    if case.cap is not None:
        yield case.found(
            "backend",
            f"Megatron keeps a dense mask of {case.cap:,}² bytes ({case.cap**2 / _GIB:.2f} GiB) a "
            "tree and rebuilds its block mask in every layer and recomputation.",
            "Nothing to set; measure the step, or use fsdp.",
        )
