"""A plan as the command line that asks the same question."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace

from packing.sources.errors import SourceError
from packing.sources.spec import SourceSpec, parse_rows
from tuning.plan.plan import Scope, TuningPlan, as_text, options

_AS_OPTIONS = ("expand", "style", "tokenizer", "limit", "versions", "roles")

CAP = "max_tokens_per_mb"
_PACKING: tuple[Scope, ...] = ("batch", "packing")
_STEP: tuple[Scope, ...] = (*_PACKING, "step")
SCOPES: Mapping[str, tuple[Scope, ...]] = {
    "rows": (),
    "advise": _STEP,
    "pack": _PACKING,
    "chain": _PACKING,
    "count": (*_PACKING, "sweep"),
    "prove": _STEP,
    "kernels": _STEP,
    "sweep": (*_STEP, "sweep"),
    "measure": _STEP,
    "whatif": (*_STEP, "sweep"),
    "export": _STEP,
}
"""Which fields of a plan each command takes."""

AT_A_CAP = frozenset({"pack", "chain", "prove", "kernels", "measure", "export"})
"""Commands that need a cap to be named."""


def rows_argument(source: SourceSpec) -> str:
    """ROWS as the command line takes it; JSON where only that is read back to the same source."""
    short = source.location
    if source.kind == "sample":
        short = f"sample:{source.location}"
    elif source.kind == "hub":
        revision = f"@{source.revision}" if source.revision else ""
        split = f":{source.split}" if source.split else ""
        short = f"hub:{source.location}{revision}{split}"
    told = {name: getattr(source, name) for name in _AS_OPTIONS}
    try:
        same = replace(parse_rows(short), **told) == source
    except SourceError:  # a file called "{" or "hub:"
        same = False
    return short if same and not short.startswith("-") else source.to_query()


def source_options(source: SourceSpec) -> list[str]:
    """Options that say how records become rows, where they differ from what ROWS says."""
    told = parse_rows(rows_argument(source))
    words: list[str] = []
    for name in ("expand", "style", "tokenizer", "limit"):
        if (value := getattr(source, name)) != getattr(told, name):
            words += [f"--{name}", str(value)]
    for version in source.versions if source.versions != told.versions else ():
        words += ["--version", version]
    for role, path in source.roles if source.roles != told.roles else ():
        words += ["--role", f"{role}={path}"]
    return words


PROGRAM = "espalier" if __package__.startswith("espalier.") else "python -m tuning"
"""How this command line is called: by the wheel's command, or in the checkout."""


def command_fields(name: str) -> list[str]:
    """The plan's fields that a command takes, in the plan's own order."""
    return [field for field, option in options().items() if option.scope in SCOPES[name]]


def command_line(name: str, plan: TuningPlan, more: Iterable[str] = ()) -> str:
    """``python -m tuning NAME ROWS …`` for a plan: every field that is not at its default.

    more: words of the command's own that stand after those of the plan
    """
    default = TuningPlan()
    words = [*PROGRAM.split(), name, rows_argument(plan.source)]
    words += source_options(plan.source)
    for field in command_fields(name):
        value, flag = getattr(plan, field), options()[field].flags[0]
        if value == getattr(default, field) and not (field == CAP and name in AT_A_CAP):
            continue
        words += [flag] if value is True else [flag, as_text(value)]
    words += more
    return shlex.join(words) + (" --json" if name != "export" else "")
