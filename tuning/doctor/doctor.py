"""The doctor: reads any AReaL config and says what tree training will do with it.

Notable:
- two verdicts: the config as it stands, and the same with tree training turned on
- every finding carries its line, AReaL's own words, when it shows, and the smallest mend
- what could not be looked at is listed in ``not_checked``; nothing is guessed
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packing.rows import Rows
from tuning.areal.config import TRAINER_NAMES, UNKNOWN, ArealConfig, ConfigError
from tuning.areal.schema import VERSION_NAMES, Version
from tuning.doctor.rules import RULES, Case, Finding

__all__ = ["ConfigError", "Finding", "Report", "check"]

_ORDER = ("fails at start", "fails at first batch", "silently wrong", "slow", "no effect")


@dataclass(frozen=True)
class Report:
    """What the doctor found.

    findings:     of the config as it stands
    if_turned_on: of the same config with tree training on; equal to findings where it is on
    not_checked:  sentences about what the file alone does not tell
    """

    config: ArealConfig
    version: Version
    tree_on: bool
    findings: tuple[Finding, ...]
    if_turned_on: tuple[Finding, ...]
    not_checked: tuple[str, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.is_error)

    @property
    def exit_code(self) -> int:
        """1 where the config as it stands fails or trains wrongly, else 0."""
        return 1 if self.errors else 0

    @property
    def verdict(self) -> str:
        """The config as it stands, in one sentence."""
        if not self.tree_on:
            if self.errors:
                return f"Tree training is off, and the run {_outcome(self.errors)}."
            return "Tree training is off; nothing here stops the run."
        if self.errors:
            return f"With tree training on, the run {_outcome(self.errors)}."
        return "With tree training on, nothing that we know of stops the run."

    @property
    def verdict_if_on(self) -> str:
        """The config with tree training turned on, in one sentence."""
        errors = [one for one in self.if_turned_on if one.is_error]
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
            "tree_training": self.tree_on,
            "verdict": self.verdict,
            "verdict_if_turned_on": self.verdict_if_on,
            "errors": len(self.errors),
            "exit_code": self.exit_code,
            "findings": [one.to_json() for one in self.findings],
            "if_turned_on": [one.to_json() for one in self.if_turned_on],
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
    on = case.tree_on()
    turned = case if on else replace(case, config=_turned_on(case), memo={})
    all_findings = _findings(turned, always_only=False)
    return Report(
        config=read,
        version=version,
        tree_on=on,
        findings=all_findings if on else _findings(case, always_only=True),
        if_turned_on=all_findings,
        not_checked=tuple(_not_checked(case)),
    )


def _turned_on(case: Case) -> ArealConfig:
    """The config with the tree key assumed: the text, and with it the lines, stay the file's."""
    values = {case.tree_key: case.tree_value}
    return replace(case.config, over={"actor": values} if case.config.prefix else values)


def _findings(case: Case, always_only: bool) -> tuple[Finding, ...]:
    found = [one for rule in RULES if rule.always or not always_only for one in rule.findings(case)]
    return tuple(sorted(found, key=lambda one: (_ORDER.index(one.severity), one.line or 0)))


def _not_checked(case: Case) -> list[str]:
    notes = list(case.config.notes)
    if case.config.trainer == "engine" or not case.config.has("train_dataset"):
        notes.append("Batch size, samples and trainer: this file does not hold them.")
    if case.backend is None:
        notes.append("Rules of the engine: the backend could not be read.")
    path = case.actor("path")
    if case.model is None:
        named = f"“{path}”" if isinstance(path, str) and path else "the model"
        notes.append(
            f"Attention and size of the model: {named} is not one that we know, and no "
            "config.json is at that place."
        )
    if case.rows is None:
        notes.append("Lengths and sharing of your rows: none were given.")
    if case.memory_budget_gib <= 0:
        notes.append("Memory: no budget was given.")
    unknown = [p for p, raw in case.config.leaves() if case.config.resolve(raw) is UNKNOWN]
    if unknown:
        notes.append(f"Values that only the run knows: {', '.join(unknown[:5])}.")
    own = [k for k in case.config.values if case.config.field(k, case.version) is None]
    if own and case.config.trainer != "engine":
        notes.append(
            f"Keys of your own training script: {', '.join(own[:8])} "
            f"({VERSION_NAMES[case.version]} itself has none of these)."
        )
    return notes


def _outcome(errors: tuple[Finding, ...] | list[Finding]) -> str:
    worst = errors[0].severity
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
    lines = [f"{kind[0].upper()}{kind[1:]}, {VERSION_NAMES[report.version]}.", report.verdict]
    lines += _listed(report.findings)
    if not report.tree_on:
        lines += ["", report.verdict_if_on]
        known = {(one.rule, one.path) for one in report.findings}
        lines += _listed(tuple(o for o in report.if_turned_on if (o.rule, o.path) not in known))
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
