"""A tuned plan as a config: YAML, a fragment under ``actor:``, overrides, or Python.

Notable:
- only keys that the chosen version has, and only what was tuned or what trees need beside it
- every export starts with its evidence: data, plan, figures, versions, date, and a link back
- what was not measured is called not measured
- where measurement says that trees lose, the same settings are written with trees off
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tuning.areal.names import PLUGIN_ATTENTION
from tuning.areal.schema import EXPORT_VERSIONS, VERSION_NAMES, Version, least_version
from tuning.export.fit import fits_only_alone
from tuning.export.frameworks import trl_config, verl_config
from tuning.jobs.points import Point
from tuning.plan.commands import rows_argument
from tuning.plan.models import HUB_IDS
from tuning.plan.numbers import gib
from tuning.plan.plan import STEP_NAMES, TuningPlan

Form = Literal["yaml", "fragment", "overrides", "python", "trl", "verl"]
FORMS: tuple[Form, ...] = get_args(Form)
FILE_NAMES: dict[Form, str] = {
    "yaml": "engine.yaml",
    "fragment": "actor.yaml",
    "overrides": "overrides.sh",
    "python": "engine_config.py",
    "trl": "trl_sft.yaml",
    "verl": "verl_overrides.sh",
}
_SUFFIXES = {"yaml": "yaml", "sh": "bash", "py": "python"}
LANGUAGES: dict[Form, str] = {
    form: _SUFFIXES[name.rpartition(".")[2]] for form, name in FILE_NAMES.items()
}
_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")
_OF_AN_UPDATE = ("gradient_checkpointing", "ppo_n_minibatches")
_LOADS_AS: Mapping[Form, str] = {
    "yaml": "PPOActorConfig (TrainEngineConfig knows no ppo_n_minibatches)",
    "fragment": "the actor of a PPOConfig or GRPOConfig: PPOActorConfig",
    "overrides": "overrides of a PPOConfig or GRPOConfig",
    "python": "PPOActorConfig",
}
"""AReaL's class of each form that is AReaL's, in ``areal.api.cli_args``."""

# JSON leaves these as they are, and some YAML readers take them for line breaks or refuse them.
_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF)}


class ExportError(ValueError):
    """The plan cannot be exported so; the message says what to change."""


@dataclass(frozen=True)
class Evidence:
    """What an export rests on.

    data:       fingerprint of the batch's rows
    packing:    exact figures of the batch, name to value, in AReaL's names where it has them
    measured:   a timed step of the plan on that batch; None where there is none
    flat_s:     seconds of the same batch in AReaL's flat micro-batches, where they were timed
    versions:   package to version
    date, link: when it was written, and where it opens again
    """

    data: str = ""
    rows: int = 0
    tokens: int = 0
    packing: Mapping[str, float | int] = field(default_factory=dict)
    measured: Point | None = None
    flat_s: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    link: str = ""


def render(
    plan: TuningPlan,
    evidence: Evidence,
    target: Version = "1.0.4",
    form: Form = "yaml",
    *,
    with_ref: bool = False,
    trees: bool = True,
) -> str:
    """The text of an export, with its evidence on top.

    target:   the AReaL version whose keys are written
    with_ref: write ``ref:`` with the same tree settings too (a reference pass runs: kl_ctl > 0)
    trees:    whether tree training is turned on, or off

    Raises ExportError for a plan that AReaL would refuse, or an unknown target or form.
    """
    if target not in EXPORT_VERSIONS:
        raise ExportError(f"target is {target!r}; choose one of {', '.join(EXPORT_VERSIONS)}.")
    if form not in FORMS:
        raise ExportError(f"form is {form!r}; choose one of {', '.join(FORMS)}.")
    problems = plan.problems()
    if problems:
        raise ExportError(" ".join(problems))
    if trees and form in _LOADS_AS and (lacking := fits_only_alone(plan)):
        raise ExportError(lacking)
    texts: Mapping[Form, Callable[[], str]] = {
        "yaml": lambda: _standalone(plan, target, trees),
        "fragment": lambda: _fragment(plan, target, with_ref, trees),
        "overrides": lambda: _overrides(plan, target, with_ref, trees),
        "python": lambda: _python(plan, target, trees),
        "trl": lambda: trl_config(plan),
        "verl": lambda: verl_config(plan),
    }
    return _header(plan, evidence, target, form) + texts[form]()


def settings(plan: TuningPlan, target: Version = "1.0.4", trees: bool = True) -> dict[str, Any]:
    """Dotted keys under ``actor`` and their values: what was tuned and what trees need."""
    found: dict[str, Any] = {}
    if target == "tree_training_mode":
        found["tree_training_mode"] = "sparse" if trees else "disabled"
    else:
        found["enable_tree_training"] = trees
    # Flat micro-batches padded to the maximum would pay what trees pay and share nothing.
    found |= {"pad_to_maximum": trees, "mb_spec.max_tokens_per_mb": plan.max_tokens_per_mb}
    if trees and _plugin(plan):
        found["attn_impl"] = PLUGIN_ATTENTION
    if trees and plan.engine == "archon":
        found["archon.enable_compile"] = True
    if trees and plan.engine == "megatron":
        found["megatron.bridge_type"] = "mbridge"
    if plan.gradient_checkpointing:
        found["gradient_checkpointing"] = True
    # Always written: AReaL's own default, 4, would scatter what was counted together.
    return found | {"ppo_n_minibatches": plan.ppo_n_minibatches}


def _plugin(plan: TuningPlan) -> bool:
    """Whether AReaL's engine is to run with Espalier inside; its plugin serves FSDP."""
    return plan.exported_step == "areal-espalier" and plan.engine == "fsdp"


def _ref_settings(plan: TuningPlan, target: Version, trees: bool) -> dict[str, Any]:
    """A reference pass has no backward, hence no checkpoints, and no minibatches."""
    found = settings(plan, target, trees)
    return {k: v for k, v in found.items() if k not in _OF_AN_UPDATE}


def changes(
    plan: TuningPlan,
    target: Version = "1.0.4",
    *,
    prefix: str = "actor.",
    with_ref: bool = False,
    trees: bool = True,
) -> dict[str, Any]:
    """The same with whole paths, as they are written into a user's config."""
    found = {f"{prefix}{key}": value for key, value in settings(plan, target, trees).items()}
    if with_ref:
        found |= {f"ref.{k}": value for k, value in _ref_settings(plan, target, trees).items()}
    return found


def override_lines(
    plan: TuningPlan,
    target: Version = "1.0.4",
    *,
    with_ref: bool = False,
    trees: bool = True,
) -> list[str]:
    """``++key=value`` each: sets a key whether the file has it or not."""
    found = changes(plan, target, with_ref=with_ref, trees=trees)
    return [f"++{path}={_plain(value)}" for path, value in found.items()]


def model_path(plan: TuningPlan) -> str | None:
    """The Hub id or path that AReaL loads; None for our random models."""
    return HUB_IDS.get(plan.model, plan.model)


def quoted(text: str) -> str:
    """A string as YAML and Python both read it."""
    return json.dumps(text, ensure_ascii=False).translate(_ESCAPES)


def _standalone(plan: TuningPlan, target: Version, trees: bool) -> str:
    path = model_path(plan)
    lines = [
        "experiment_name: espalier",
        "trial_name: tuned",
        f"backend: {quoted(plan.backend)}",
        f"path: {quoted(path)}"
        if path
        else f"# path: your model (the plan was timed with the random model {plan.model})",
        *_nested(settings(plan, target, trees)),
    ]
    return "\n".join(lines) + "\n"


def _fragment(plan: TuningPlan, target: Version, with_ref: bool, trees: bool) -> str:
    lines = ["actor:", *_nested(settings(plan, target, trees), "  ")]
    if with_ref:
        lines += ["ref:", *_nested(_ref_settings(plan, target, trees), "  ")]
    return "\n".join(lines) + "\n"


def _overrides(plan: TuningPlan, target: Version, with_ref: bool, trees: bool) -> str:
    lines = override_lines(plan, target, with_ref=with_ref, trees=trees)
    body = " \\\n  ".join(lines)
    return f"# append to: python train.py --config your.yaml\n  {body}\n"


def _python(plan: TuningPlan, target: Version, trees: bool) -> str:
    found = settings(plan, target, trees)
    nested = {
        "mb_spec": ("MicroBatchSpec", "max_tokens_per_mb"),
        "archon": ("ArchonEngineConfig", "enable_compile"),
        "megatron": ("MegatronEngineConfig", "bridge_type"),
    }
    used = {key.split(".")[0] for key in found if "." in key}
    classes = sorted({"PPOActorConfig", *(nested[name][0] for name in used)})
    path = model_path(plan)
    arguments = [
        ("experiment_name", '"espalier"'),
        ("trial_name", '"tuned"'),
        ("backend", quoted(plan.backend)),
        *([("path", quoted(path))] if path else []),
    ]
    for key, value in found.items():
        name, _, inner = key.partition(".")
        shown = f"{nested[name][0]}({inner}={value!r})" if inner else repr(value)
        arguments.append((name, shown))
    imported = "".join(f"    {name},\n" for name in classes)
    body = "".join(f"    {name}={shown},\n" for name, shown in arguments)
    return f"from areal.api.cli_args import (\n{imported})\n\nactor = PPOActorConfig(\n{body})\n"


def _nested(found: Mapping[str, Any], indent: str = "") -> list[str]:
    lines: list[str] = []
    for key, value in found.items():
        section, _, inner = key.rpartition(".")
        if section:
            lines += [f"{indent}{section}:", f"{indent}  {inner}: {_plain(value)}"]
        else:
            lines.append(f"{indent}{key}: {_plain(value)}")
    return lines


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _header(plan: TuningPlan, evidence: Evidence, target: Version, form: Form) -> str:
    """Comment lines; whatever came from outside is kept on its line."""
    what = {
        "trl": "TRL (approximate: no prefix trees)",
        "verl": "verl (approximate: no prefix trees)",
    }.get(form, VERSION_NAMES[target])
    lines = [f"Tuned with Espalier for {what}" + (f", {evidence.date}" if evidence.date else "")]
    if form in _LOADS_AS:
        lines.append(f"loads as {_LOADS_AS[form]}")
    data = f"data: {rows_argument(plan.source)}"
    if evidence.data:
        data += f" ({evidence.rows:,} rows, {evidence.tokens:,} tokens, hash {evidence.data})"
    lines.append(data)
    lines.append(
        f"plan {plan.key}: {plan.prompts_per_step or 'all'} prompts × "
        f"{plan.samples_per_prompt or 'all'} samples a step, {plan.backend}, "
        f"ppo_n_minibatches {plan.ppo_n_minibatches}, max_tokens_per_mb {plan.max_tokens_per_mb}"
    )
    if form in _LOADS_AS:
        lines.append(f"run by: {STEP_NAMES[plan.exported_step]}")
    if form in _LOADS_AS and _plugin(plan):
        lines.append(
            "needs Espalier in AReaL's environment, and in scheduling_spec's env_vars "
            f'ESPALIER_AREAL: "1", ESPALIER_AREAL_PACKER: "{plan.packer}"; else AReaL stops at its '
            "start"
        )
    if evidence.packing:
        figures = ", ".join(f"{name} {_figure(v)}" for name, v in evidence.packing.items())
        whose = "" if plan.packer == "areal" else ", with Espalier's packer inside AReaL"
        lines.append(f"packing (exact{whose}): {figures}")
    lines.append(_measured(evidence.measured, evidence.flat_s))
    if form not in ("trl", "verl"):
        least = least_version("PPOActorConfig", settings(plan, target))
        lines.append(f"needs {VERSION_NAMES[least or target]} or newer")
    if evidence.versions:
        lines.append(
            "versions: " + ", ".join(f"{name} {v}" for name, v in evidence.versions.items())
        )
    if evidence.link:
        lines.append(f"reopen: {evidence.link}")
    return "".join(f"# {_CONTROL.sub(' ', line)}\n" for line in lines)


def _measured(found: Point | None, flat_s: float | None) -> str:
    if found is None:
        return "step: not measured"
    asked = found.question
    spread = f" ({found.p20_s:.3f}-{found.p80_s:.3f})" if found.p20_s and found.p80_s else ""
    text = (
        f"step of {STEP_NAMES[asked.step_of]} (measured): {found.step_s:.3f} s{spread}, "
        f"{found.tokens_per_s:,.0f} original tokens/s, model {asked.model}, {asked.dtype}, "
        f"{asked.machine}, {found.measured_at}"
    )
    if found.repeats:
        text += f", {found.repeats} runs"
    if found.memory_bytes is not None:
        text += f", peak {gib(found.memory_bytes)}"
    if flat_s is not None:
        text += f"; flat packing {flat_s:.3f} s"
    return text


def _figure(value: float | int) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
