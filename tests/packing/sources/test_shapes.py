"""Every shape that docs/sources.md names is read as its rows are marked, by its command."""

from __future__ import annotations

import json
import re
import shlex
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from packing.sources.load import load_here as load
from packing.sources.loaded import Loaded
from packing.sources.spec import parse_rows
from tests.packing.source_files import own_cache
from tests.packing.sources.more_shapes import MORE
from tests.packing.sources.shapes import SHAPES as FIRST
from tests.packing.sources.shapes import Row
from tuning.cli.main import app

__all__ = ["own_cache"]

SHAPES = FIRST | MORE
DOCUMENTED = Path(__file__).parents[3] / "docs" / "sources.md"
EMPTY_THINK = "<think>\n\n</think>\n\n"


def commands() -> dict[str, list[str]]:
    """The arguments of the documented command of each shape."""
    found = {}
    for line in DOCUMENTED.read_text(encoding="utf-8").splitlines():
        match = re.search(r"`python -m tuning (rows .+?)`", line)
        if line.startswith("|") and match:
            arguments = shlex.split(match[1])
            found[arguments[1]] = arguments
    return found


def spans(loaded: Loaded, row: int) -> list[tuple[bool, str]]:
    """Runs of a row that are trained, or not, as text."""
    ids = loaded.rows[row]
    start = int(loaded.rows.offsets[row])
    mask = loaded.rows.loss_mask
    trained = np.zeros(len(ids), bool) if mask is None else mask[start : start + len(ids)] != 0
    cuts = [0, *(np.flatnonzero(np.diff(trained)) + 1).tolist(), len(ids)]
    return [
        (bool(trained[a]), loaded.rows.text(ids[a:b]).replace(EMPTY_THINK, ""))
        for a, b in pairwise(cuts)
        if b > a
    ]


def agrees(loaded: Loaded, row: int, marked: Row) -> None:
    """Whether a row is what was marked by hand."""
    if not isinstance(marked, str):
        start, stop = int(loaded.rows.offsets[row]), int(loaded.rows.offsets[row + 1])
        assert loaded.rows[row].tolist() == marked[0]
        assert loaded.rows.loss_mask is not None
        assert loaded.rows.loss_mask[start:stop].tolist() == marked[1]
        return
    made = spans(loaded, row)
    pieces = re.split(r"(?<!<)\|(?!>)", marked)  # not the bars of <|im_end|>
    assert [text for trained, text in made if trained] == [p[1:-1] for p in pieces if p[0] == "«"]
    whole = "".join(f"«{text}»" if trained else text for trained, text in made)
    at = 0
    for piece in pieces:
        found = whole.find(piece, at)
        assert found >= 0, (piece, whole)
        at = found + len(piece)


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_read_as_marked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shape = SHAPES[name]
    shape.write(tmp_path / name)
    loaded = load(parse_rows(name))
    assert len(loaded.rows) == len(shape.rows), [spans(loaded, r) for r in range(len(loaded.rows))]
    for row, marked in enumerate(shape.rows):
        agrees(loaded, row, marked)
    assert loaded.rows.group.tolist() == list(shape.groups)


def test_every_shape_is_documented_and_every_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("load", "expansions"):
        module = import_module(f"packing.sources.{name}")
        monkeypatch.setattr(module, "load", load)  # in this process: sixty children take a minute
    documented = commands()
    assert set(documented) == set(SHAPES) and len(SHAPES) >= 40
    for name, arguments in documented.items():
        shape = SHAPES[name]
        shape.write(tmp_path / name)
        result = CliRunner().invoke(app, [*arguments, "--json"])
        assert result.exit_code == 0, (name, result.output)
        said: dict[str, Any] = json.loads(result.stdout)
        assert said["rows"] == len(shape.rows), name
        assert said["groups"] == len(set(shape.groups)), name
