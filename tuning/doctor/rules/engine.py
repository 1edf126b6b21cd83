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


@rule("backend", "fails at start", "api/alloc_mode.py", always=True, each=True)
def backend(case: Case) -> Iterator[Found]:
    yield from _unreadable(case, case.path("backend"), case.version)


@rule("server-backend", "fails at start", "api/alloc_mode.py; rl_trainer.py", always=True)
def server_backend(case: Case) -> Iterator[Found]:
    teacher = case.get("teacher.engine_type") == "rollout"
    for path in ("rollout.backend", *(["teacher.rollout.backend"] if teacher else [])):
        if case.config.field(path, case.version) is not None and case.config.has(path):
            yield from _unreadable(case, path, None)


@rule("idle-backend", "no effect", "trainer/rl_trainer.py, _init_impl", always=True)
def idle_backend(case: Case) -> Iterator[Found]:
    """A ref that no run makes while ``kl_ctl`` is 0: its string is not read then."""
    if case.config.has("ref.backend") and "ref" not in case.engines:
        for one in _unreadable(case, "ref.backend", case.version):
            yield replace(
                one,
                problem=f"Not read while actor.kl_ctl is 0: {one.problem}",
                when="as soon as actor.kl_ctl is above 0",
            )


def _unreadable(case: Case, path: str, version: Version | None) -> Iterator[Found]:
    text = case.get(path)
    if not isinstance(text, str) or text == REQUIRED:
        return
    try:
        Server.parse(text) if version is None else Backend.parse(text, version)
    except BackendError as error:
        yield Found(f"{path}: {error}", "Correct the string.", says=error.says, path=path)


@rule("parallelism", "fails at start", "engine and api/alloc_mode.py of each engine", each=True)
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


@rule("megatron-pipeline", "slow", "engine/megatron_engine.py, _prepare_mb_list", each=True)
def megatron_pipeline(case: Case) -> Iterator[Found]:
    b = case.backend
    if b is None or b.engine != "megatron":
        return
    virtual = case.setting("megatron.virtual_pipeline_parallel_size")
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


@rule(
    "archon-compile", "fails at first batch", "api/cli_args.py (#1278), archon_utils.py", each=True
)
def archon_compile(case: Case) -> Iterator[Found]:
    if case.engine != "archon":
        return
    path = case.path("archon.enable_compile")
    if case.setting("archon.fp8_config.mode") == "blockwise":
        yield Found(
            "FP8 switches torch.compile off, and without it attention builds the whole score "
            f"matrix{_score_matrix(case)}.",
            f"Set {case.path('archon.fp8_config.mode')} to disabled"
            + ("" if case.setting("archon.enable_compile") else f", and {path} to true")
            + ".",
            says="FP8 blockwise training is incompatible with torch.compile. Disabling "
            "torch.compile.",
            path=case.path("archon.fp8_config.mode"),
            fix={case.path("archon.fp8_config.mode"): "disabled", path: True},
        )
        return
    schedule = case.setting("archon.pp_schedule")
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
    if case.setting("archon.enable_compile") is False:
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


@rule("attention-implementation", "silently wrong", "models/tree_attn/module_fsdp.py", each=True)
def attention_implementation(case: Case) -> Iterator[Found]:
    kind = case.setting("attn_impl")
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


@rule("megatron-bridge", "fails at start", "engine/megatron_engine.py:566", each=True)
def megatron_bridge(case: Case) -> Iterator[Found]:
    path = case.path("megatron.bridge_type")
    if (
        case.engine == "megatron"
        and case.setting("megatron.bridge_type") == "megatron-bridge"
        and case.setting("use_lora") is not True
    ):
        yield Found(
            "bridge_type is megatron-bridge; trees need mbridge.",
            f"Set {path} to mbridge.",
            says="Tree training is not supported with bridge_type='megatron-bridge'.",
            path=path,
            fix={path: "mbridge"},
        )


@rule("megatron-lora", "fails at start", "engine/megatron_engine.py:327 and :566", each=True)
def megatron_lora(case: Case) -> Iterator[Found]:
    if case.engine == "megatron" and case.setting("use_lora") is True:
        bridged = case.setting("megatron.bridge_type") == "megatron-bridge"
        yield Found(
            "LoRA on Megatron needs megatron-bridge, and trees need mbridge: they cannot meet.",
            "Train LoRA with trees on fsdp, or keep Megatron without trees.",
            says="Tree training is not supported with bridge_type='megatron-bridge'."
            if bridged
            else "MegatronEngine LoRA POC currently only supports bridge_type='megatron-bridge'.",
            path=case.path("use_lora"),
        )


@rule(
    "archon-lora", "silently wrong", "experimental/engine/archon_engine.py", always=True, each=True
)
def archon_lora(case: Case) -> Iterator[Found]:
    if case.engine == "archon" and case.setting("use_lora") is True:
        yield Found(
            "use_lora is true, but Archon has no LoRA: it would train all weights.",
            "Use fsdp for LoRA, or set use_lora to false.",
            path=case.path("use_lora"),
            when="never: no error is raised, all weights are trained",
        )


@rule(
    "megatron-chunked-head",
    "fails at start",
    "engine/megatron_engine.py (main), __init__",
    each=True,
)
def megatron_chunked_head(case: Case) -> Iterator[Found]:
    if case.engine != "megatron":
        return
    for name in ("enable_chunked_logits", "lm_head_loss_chunk_size"):
        if case.config.field(case.path(f"megatron.{name}"), case.version) is None:
            continue
        if case.setting(f"megatron.{name}"):
            path = case.path(f"megatron.{name}")
            yield Found(
                f"megatron.{name} is set; the chunked head is not available with trees.",
                f"Remove {path}.",
                says="AReaL LM Head does not support tree training",
                path=path,
                fix={path: False} if name == "enable_chunked_logits" else {},
            )


@rule(
    "key-value-cache", "slow", "engine/fsdp_engine.py, tree path of _prepare_mb_inputs", each=True
)
def key_value_cache(case: Case) -> Iterator[Found]:
    trained = case.role == "actor" and case.engine == "fsdp"
    if not trained or case.setting("gradient_checkpointing") is not False:
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


@rule("megatron-mask", "slow", "models/tree_attn/module_megatron.py (#889)", each=True)
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
