"""The doctor refuses what AReaL's own parser and start checks refuse, and nothing else.

Notable:
- ``areal_answers.json`` holds AReaL 1.0.4's answers to seeded edits of configs of our own; it is
  written by ``python -m benchmarks.areal_configs --write --mutations 1100 --seed 7``
- the deep test asks AReaL itself about other edits, in an environment of its own
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.areal_configs import ANSWERS, answers_of, bases, compare, refused_by_us
from scripts.areal_schema import make_environment, unpack_wheel
from tests.tuning.areal_mutations import Mutation, mutations
from tuning.areal.schema import table

STORED: list[tuple[str, list[list[Any]], bool, str]] = json.loads(ANSWERS.read_text())["answers"]
VALUES, CLASSES = bases(shared=False)


def _mutation(base: str, edits: list[list[Any]]) -> Mutation:
    return Mutation(base, tuple((path, value) for path, value in edits))


def test_the_answers_cover_every_section_and_are_refused_often() -> None:
    edited = [one for one in STORED if one[1]]
    assert len(edited) >= 1000
    refused = sum(not accepted for _, _, accepted, _ in edited)
    assert 0.3 <= refused / len(edited) <= 0.8
    hit = {_mutation(base, edits).section for base, edits, _, _ in edited}
    sections = {key for key, known in table("1.0.4", "PPOConfig").items() if known.section}
    assert sections <= hit
    assert len({error for *_, error in STORED}) >= 8, "many kinds of error"


def _judged(part: list[tuple[str, list[list[Any]], bool, str]]) -> tuple[list[str], list[str]]:
    missed, alone = [], []
    for base, edits, accepted, error in part:
        ours, _ = refused_by_us(_mutation(base, edits).applied(VALUES), "1.0.4")
        if ours and accepted:
            alone.append(f"{base} {edits}: {ours}")
        if not ours and not accepted:
            missed.append(f"{base} {edits}: {error}")
    return missed, alone


def test_nothing_that_areal_refuses_is_missed_in_a_tenth_of_the_answers() -> None:
    part = [one for one in STORED if not one[1]] + STORED[3::12]
    missed, alone = _judged(part)
    assert not missed
    assert len(alone) <= 0.01 * len(part), alone


@pytest.mark.deep
def test_nothing_that_areal_refuses_is_missed() -> None:
    missed, alone = _judged(STORED)
    assert not missed
    assert len(alone) <= 0.01 * len(STORED), alone


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_areal_itself_agrees_on_edits_of_another_seed(request: pytest.FixtureRequest) -> None:
    folder = Path(request.config.cache.mkdir("areal-own-environment"))
    try:
        python = make_environment(folder / "environment")
        root = unpack_wheel("1.0.4", folder / "wheel")
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"AReaL's environment could not be made: {error}")
    edits = list(mutations(VALUES, CLASSES, "1.0.4", seed=20, count=150))
    texts = [(CLASSES[one.base], one.applied(VALUES)) for one in edits]
    counts, lines = compare(texts, answers_of(texts, python, root), "1.0.4")
    assert counts["false green"] == counts["not checked"] == 0, lines
    assert counts["refused by us alone"] <= 0.02 * len(texts), lines
    assert Counter(one.section for one in edits)
