"""The doctor: reads any AReaL config and says what AReaL will do with it, trees on and off.

Notable:
- two verdicts: the config as it stands, and the same with tree training turned on
- every finding carries its line, AReaL's own words, when it shows, and the smallest mend
- green means looked at: no finding, and parser, engines and row bound were all checked; what was
  not is listed in ``not_checked``, nothing is guessed
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packing.rows import Rows
from tuning.areal.config import TRAINER_NAMES, TREES_SERVE, ArealConfig, ConfigError
from tuning.areal.schema import VERSION_NAMES, Version
from tuning.doctor.rules import RULES, Case, Finding
from tuning.doctor.rules.cap import longest_possible
from tuning.doctor.rules.memory import Server, need_of, server_of

__all__ = ["ConfigError", "Finding", "Report", "check"]

_SOME_ROW = "at the first batch that holds"
_ORDER = ("fails at start", "fails at first batch", "silently wrong", "slow", "no effect")


@dataclass(frozen=True)
class Report:
    """What the doctor found.

    findings:     of the config as it stands
    if_turned_on: of the same config with tree training on; equal to findings where it is on
    checked:      what was looked at, one sentence each
    open_points:  what a green verdict needs and nobody looked at
    not_checked:  these and whatever else the file alone does not tell
    """

    config: ArealConfig
    version: Version
    tree_on: bool
    findings: tuple[Finding, ...]
    if_turned_on: tuple[Finding, ...]
    checked: tuple[str, ...]
    open_points: tuple[str, ...]
    not_checked: tuple[str, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.is_error)

    @property
    def exit_code(self) -> int:
        """1 where the config as it stands fails or trains wrongly, else 0."""
        return 1 if self.errors else 0

    @property
    def green(self) -> bool:
        """Nothing was found, and everything that a verdict rests on was looked at."""
        return not self.findings and not self.open_points

    @property
    def verdict(self) -> str:
        """The config as it stands, in one sentence."""
        if self.config.trainer == "other":
            return (
                "This is no config of AReaL's: none of its keys are AReaL's. Nothing was checked."
            )
        start = "With tree training on" if self.tree_on else "Tree training is off"
        if self.config.trainer not in TREES_SERVE:
            start = f"This is {TRAINER_NAMES[self.config.trainer]}"
        if self.errors:
            return f"{start}, {_and(start)}the run {_outcome(self.errors)}."
        if self.open_points:
            return f"{start}; no fault found; not checked: {_short(self.open_points)}."
        if self.findings:
            return f"{start}; no fault found, {_count(len(self.findings), 'remark')}."
        return f"{start}, {_and(start)}nothing that we know of stops the run."

    @property
    def verdict_if_on(self) -> str:
        """The config with tree training turned on, in one sentence."""
        if self.config.trainer in ("other", "rollout"):
            return "There is no tree training to turn on here."
        errors = [one for one in self.if_turned_on if one.is_error]
        if not errors and self.open_points:
            return f"Turned on, no fault found; not checked: {_short(self.open_points)}."
        if not errors:
            return "Turned on, nothing that we know of stops it."
        if all(one.fix for one in errors):
            return f"Turned on, it needs {_count(len(errors), 'change')} first."
        blocked = next(one for one in errors if not one.fix)
        return f"Turned on, it {_outcome(errors)}: {_lowered(blocked.problem)}"

    @property
    def mends(self) -> dict[str, Any]:
        """Paths and values that mend what can be mended by a setting, tree training on."""
        return {
            path: value
            for one in self.if_turned_on
            if one.is_error
            for path, value in one.fix.items()
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "trainer": self.config.trainer,
            "fragment": self.config.fragment,
            "tree_training": self.tree_on,
            "verdict": self.verdict,
            "green": self.green,
            "verdict_if_turned_on": self.verdict_if_on,
            "errors": len(self.errors),
            "exit_code": self.exit_code,
            "findings": [one.to_json() for one in self.findings],
            "if_turned_on": [one.to_json() for one in self.if_turned_on],
            "checked": list(self.checked),
            "not_checked": list(self.not_checked),
        }


def check(
    config: str | bytes | Path | ArealConfig,
    rows: Rows | None = None,
    *,
    version: Version = "1.0.4",
    memory_budget_gib: float = 0.0,
    environment: Mapping[str, str] | None = None,
) -> Report:
    """Look at a config, given as text, as a path, or read already.

    rows:              the user's rows; rules on lengths and sharing run on them
    memory_budget_gib: what one rank may use; 0 leaves memory unchecked
    environment:       variables of the run beside those of ``scheduling_spec``

    Raises ConfigError where the file is no config.
    """
    if isinstance(config, str) and "\n" not in config and config.endswith((".yaml", ".yml")):
        config = Path(config)
    read = config if isinstance(config, ArealConfig) else ArealConfig.read(config)
    case = Case(read, version, rows, memory_budget_gib, environment or {})
    on = case.trees
    turns = read.trainer not in ("other", "rollout")
    turned = case if on or not turns else replace(case, config=_turned_on(case), memo={})
    findings = _findings(case)
    open_points = tuple(_open_points(turned))
    return Report(
        config=read,
        version=version,
        tree_on=on,
        findings=findings,
        if_turned_on=findings if turned is case else _findings(turned),
        checked=tuple(_checked(turned)),
        open_points=open_points,
        not_checked=(*open_points, *_left_out(case)),
    )


def _turned_on(case: Case) -> ArealConfig:
    """The config with the tree key assumed: the text, and with it the lines, stay the file's."""
    return case.config.assuming(case.path(case.tree_key), case.tree_value, case.version)


def _findings(case: Case) -> tuple[Finding, ...]:
    found = {
        (one.rule, one.path, one.problem): one for rule in RULES for one in rule.findings(case)
    }
    in_order = sorted(found.values(), key=lambda one: (_ORDER.index(one.severity), one.line or 0))
    return tuple(in_order)


def _checked(case: Case) -> Iterator[str]:
    """What was looked at, whatever came of it."""
    config = case.config
    if not config.class_name:
        return
    parsed = config.parsed(case.version)
    seen = [key for key in config.values if key not in parsed.own]
    what = "keys, types, values and references of" if seen else "nothing of"
    yield f"{VERSION_NAMES[case.version]}'s parser ({config.class_name}): {what} {', '.join(seen)}"
    for role in case.engines:
        one = case.of(role)
        if one.backend is not None:
            trees = "with trees" if one.trees else "without trees"
            yield f"Rules of {role} on {one.setting('backend')}, {trees}"
    if config.trainer == "ppo" and not config.fragment:
        yield "What the trainer checks as it starts"
    longest = longest_possible(case)
    if case.rows is not None:
        yield f"Lengths of your {len(case.rows):,} rows"
    elif longest is not None:
        yield f"Row bound: {longest[0]:,} tokens, as {longest[1]}"
    if case.memory_budget_gib > 0:
        for role in case.engines:
            need = need_of(case.of(role))
            yield (
                f"Memory of {role}: at least {need.total:.1f} of {case.memory_budget_gib:g} GiB "
                f"({need.listed})"
            )
        server = server_of(case)
        if isinstance(server, Server):
            yield (
                f"Memory of the rollout's server: {server.key} takes {server.share:.1f} GiB, "
                f"engines beside it keep {server.beside:.1f}"
            )


def _open_points(case: Case) -> Iterator[str]:
    """What a green verdict rests on and nobody looked at."""
    config = case.config
    if not config.class_name:
        yield "everything: no key of this file is AReaL's"
        return
    yield from config.notes
    parsed = config.parsed(case.version)
    if config.fragment:
        yield "what this part of a config does not hold"
    if parsed.unknown:
        yield f"values that only the run knows: {', '.join(parsed.unknown[:5])}"
    if parsed.own:
        yield f"keys of your own training script: {', '.join(parsed.own[:8])}"
    if config.trainer == "rollout":
        yield "training: this file holds none"
    for role in case.engines:
        one = case.of(role)
        if one.backend is None:
            yield f"rules of {role}: its backend could not be read"
        if one.trees and one.model is None:
            path = one.setting("path")
            named = f"“{path}”" if isinstance(path, str) and path else "its model"
            yield (
                f"attention of {role}'s model: {named} is not one that we know, and no "
                "config.json is at that place"
            )
    if case.memory_budget_gib > 0:
        needs = {role: need_of(case.of(role)).unknown for role in case.engines}
        yield from (f"memory of {role}: {', '.join(n)}" for role, n in needs.items() if n)
        if isinstance(server := server_of(case), str):
            yield f"memory of the rollout's server: {server}"
    if case.rows is None and config.trainer in TREES_SERVE and longest_possible(case) is None:
        yield "row bound: neither rows nor limits of generation are here"


def _left_out(case: Case) -> Iterator[str]:
    """What a verdict does not claim to cover, and could with more at hand."""
    if case.config.trainer == "engine":
        yield "Batch size, samples and trainer: an engine's config does not hold them."
    if case.rows is None:
        yield "Lengths and sharing of your rows: none were given."
    if case.memory_budget_gib <= 0:
        yield "Memory: no budget was given."


def _short(points: tuple[str, ...]) -> str:
    listed = "; ".join(point.partition(":")[0] for point in points[:3])
    return listed + (f" and {len(points) - 3} more" if len(points) > 3 else "")


def _and(start: str) -> str:
    return "" if start.startswith("With") else "and "


def _outcome(errors: tuple[Finding, ...] | list[Finding]) -> str:
    worst = errors[0].severity
    if errors[0].when.startswith(_SOME_ROW):
        return f"fails {errors[0].when} ({_count(len(errors), 'error')})"
    words = {
        "fails at start": "fails at the start",
        "fails at first batch": "fails at the first batch",
        "silently wrong": "trains on wrong gradients without any error",
    }[worst]
    return f"{words} ({_count(len(errors), 'error')})"


def _count(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def _lowered(sentence: str) -> str:
    """The sentence as it goes on after a colon; names keep their capitals."""
    first, _, rest = sentence.partition(" ")
    return f"{first.lower() if first in _COMMON else first} {rest}"


_COMMON = {"This", "The", "A", "Without", "Context", "Sequence"}


def describe(report: Report) -> str:
    """The report as plain text, for a terminal."""
    kind = TRAINER_NAMES[report.config.trainer]
    part = "A part of a config" if report.config.fragment else f"{kind[0].upper()}{kind[1:]}"
    lines = [f"{part}, {VERSION_NAMES[report.version]}.", report.verdict]
    lines += _listed(report.findings)
    if not report.tree_on:
        lines += ["", report.verdict_if_on]
        known = {(one.rule, one.path) for one in report.findings}
        lines += _listed(tuple(o for o in report.if_turned_on if (o.rule, o.path) not in known))
    if report.checked:
        lines += ["", "Checked:", *(f"  {note}" for note in report.checked)]
    if report.not_checked:
        lines += ["", "Not checked:", *(f"  {note}" for note in report.not_checked)]
    return "\n".join(lines)


def _listed(findings: tuple[Finding, ...]) -> list[str]:
    lines: list[str] = []
    for one in findings:
        where = f"line {one.line}: " if one.line else ""
        lines += ["", f"[{one.severity}] {where}{one.problem}"]
        if one.says:
            lines.append(f"  AReaL: “{one.says}”")
        lines += [
            f"  When: {one.when}.",
            f"  Mend: {one.mend}",
            f"  Rule {one.rule}; {one.source}.",
        ]
    return lines
