"""The doctor against AReaL's own parser and start checks, on configs and seeded edits of them.

    python -m benchmarks.areal_configs --seed 1 --mutations 1000
    python -m benchmarks.areal_configs --version main --root CHECKOUT --mutations 300
    python -m benchmarks.areal_configs --write           # the answers that the tests hold against

Notable:
- AReaL answers in an environment of its own, which this makes once (see scripts/areal_schema.py)
- a false green is a config that AReaL refuses and the doctor finds no fault in
- configs of ../shared/data/areal_configs are edited too where that folder is there
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from scripts.areal_schema import make_environment, unpack_wheel
from tests.tuning.areal_mutations import Mutation, mutations
from tests.tuning.configs import WHOLE
from tuning.areal.config import ArealConfig, ConfigError
from tuning.areal.schema import VERSIONS, Version, table
from tuning.doctor.check import ask
from tuning.doctor.doctor import Report, check

_ROOT = Path(__file__).parents[1]
_SHARED = _ROOT.parent / "shared" / "data" / "areal_configs"
ANSWERS = _ROOT / "tests" / "tuning" / "doctor" / "areal_answers.json"
_BATCH = 50
# Rules about what the parser, the classes and the trainer's first checks refuse; what engines
# refuse later, as they load, is not compared here.
_EARLY = (
    "hydra-compose",
    "unknown-key",
    "wrong-type",
    "interpolation",
    "missing-value",
    "wrong-value",
    "joined-values",
    "backend",
    "server-backend",
    "start-checks",
)


def bases(shared: bool, version: Version = "1.0.4") -> tuple[dict[str, Any], dict[str, str]]:
    """Values and class of each config: our own, and AReaL's examples where they are.

    Left out is what ``version`` has no class for.
    """
    values = {name: yaml.safe_load(text) for name, text in WHOLE.items()}
    if shared and _SHARED.is_dir():
        values |= {f.stem: yaml.safe_load(f.read_text()) for f in sorted(_SHARED.glob("*.yaml"))}
    classes = {
        name: ArealConfig.read(yaml.safe_dump(value)).class_name for name, value in values.items()
    }
    known = {name: values[name] for name, cls in classes.items() if table(version, cls)}
    return known, {name: classes[name] for name in known}


def refused_by_us(text: str, version: Version) -> tuple[str, Report | None]:
    """The rules by which we say that AReaL refuses the text at its start; empty where it runs."""
    try:
        report = check(text, version=version)
    except ConfigError as error:
        return f"ConfigError: {error}", None
    rules = [
        f"{one.rule} {one.path}"
        for one in report.findings
        if one.severity == "fails at start" and one.rule in _EARLY
    ]
    return "; ".join(rules), report


def answers_of(
    texts: Sequence[tuple[str, str]], python: Path, root: Path, told: bool = False
) -> list[dict[str, Any]]:
    """AReaL's answer to each class and text."""
    found: list[dict[str, Any]] = []
    for start in range(0, len(texts), _BATCH):
        many = [{"class": name, "text": text} for name, text in texts[start : start + _BATCH]]
        found += ask({"root": str(root), "many": many}, 600.0, python)["answers"]
        if told:
            sys.stdout.write(f"\rasked AReaL {len(found)} of {len(texts)}")
            sys.stdout.flush()
    return found


def compare(
    texts: Sequence[tuple[str, str]], answers: Sequence[Mapping[str, Any]], version: Version
) -> tuple[Counter[str], dict[int, str]]:
    """How often both agree, and a line for each disagreement by its place."""
    counts: Counter[str] = Counter()
    lines: dict[int, str] = {}
    for place, ((_, text), answer) in enumerate(zip(texts, answers, strict=True)):
        ours, report = refused_by_us(text, version)
        counts["refused" if not answer["accepted"] else "accepted"] += 1
        if answer["accepted"] == (not ours):
            counts["agree"] += 1
        elif ours:
            counts["refused by us alone"] += 1
            lines[place] = f"we alone refuse: {ours}"
        else:
            open_points = report is not None and report.open_points
            counts["not checked" if open_points else "false green"] += 1
            said = "not checked" if open_points else "FALSE GREEN"
            lines[place] = f"{said}: {answer['error'][:150]!r}"
    return counts, lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutations", type=int, default=1000)
    parser.add_argument("--version", choices=VERSIONS, default="1.0.4")
    parser.add_argument("--root", type=Path, help="a checkout or unpacked wheel of that version")
    parser.add_argument("--environment", type=Path, default=Path(".cache/areal"))
    parser.add_argument("--write", action="store_true", help="write the answers for the tests")
    given = parser.parse_args()
    python = make_environment(given.environment / "environment")
    root = given.root or unpack_wheel(given.version, given.environment / "wheel")
    values, classes = bases(shared=not given.write, version=given.version)
    edits = [Mutation(name, ()) for name in values]
    edits += mutations(values, classes, given.version, given.seed, given.mutations)
    texts = [(classes[one.base], one.applied(values)) for one in edits]
    answers = answers_of(texts, python, root, told=True)
    sys.stdout.write("\n")
    if given.write:
        _write(edits, answers, given.version)
    counts, lines = compare(texts, answers, given.version)
    for place, line in lines.items():
        sys.stdout.write(f"{edits[place].base} {list(edits[place].edits)}: {line}\n")
    sections = Counter(edit.section for edit in edits if edit.edits)
    sys.stdout.write(f"{dict(counts)}\nsections: {dict(sections)}\n")
    raise SystemExit(1 if counts["false green"] else 0)


def _write(edits: Sequence[Mutation], answers: Sequence[Mapping[str, Any]], version: str) -> None:
    lines = [
        json.dumps([e.base, e.edits, a["accepted"], a.get("error", "").partition(":")[0]])
        for e, a in zip(edits, answers, strict=True)
    ]
    body = ",\n".join(lines)
    ANSWERS.write_text(f'{{"version": "{version}", "answers": [\n{body}\n]}}\n')
    sys.stdout.write(f"{ANSWERS}: {len(lines)} answers\n")


if __name__ == "__main__":
    main()
