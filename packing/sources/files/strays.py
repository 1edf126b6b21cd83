"""Files of a folder that hold something else than the rows: configs and metrics beside rollouts.

Notable:
- one file of each pattern of names is looked at, so a folder of thousands opens quickly
- a file that cannot be read is no stray: it stays, and its error is told
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from packing.sources import fields
from packing.sources.chunks import Chunk
from packing.sources.errors import SourceError
from packing.sources.files.paths import SourceFile
from packing.sources.layouts.known import layout_of
from packing.sources.role_names import CONTENT
from packing.sources.roles import recognise

LOOKED_AT = 40


def without_strays(
    files: list[SourceFile],
    roles: Sequence[tuple[str, str]],
    read: Callable[[SourceFile], Iterator[Chunk]],
) -> tuple[list[SourceFile], list[str]]:
    """(files that hold the rows, names of those that do not), by what most bytes are.

    roles: given by hand: a file without one of their columns is a stray
    """
    patterns: dict[str, list[SourceFile]] = {}
    for file in files:
        patterns.setdefault(re.sub(r"\d+", "#", file.name), []).append(file)
    if len(patterns) < 2:
        return files, []
    sizes = {name: sum(f.size for f in found) for name, found in patterns.items()}
    looked = sorted(patterns, key=lambda name: -sizes[name])[:LOOKED_AT]
    shapes = {name: _shape(patterns[name][0], roles, read) for name in looked}
    known = {shape for shape in shapes.values() if shape}
    if not known:
        return files, []
    rows = max(known, key=lambda shape: sum(sizes[n] for n in looked if shapes[n] == shape))
    out = {n for n in looked if shapes[n] is not None and shapes[n] != rows}
    strays = {f.name for name in out for f in patterns[name]}
    return [f for f in files if f.name not in strays], sorted(strays)


def _shape(
    file: SourceFile,
    roles: Sequence[tuple[str, str]],
    read: Callable[[SourceFile], Iterator[Chunk]],
) -> frozenset[tuple[str, str]] | None:
    """What a file's first records hold; empty for no rows, None where they cannot be read."""
    try:
        records = next(read(file)).records[:20]
    except (SourceError, StopIteration):
        return None
    if not records:
        return None
    if roles:
        there = [p for p in roles if any(True for r in records for _ in fields.find(r, p[1]))]
        return frozenset(there) if len(there) == len(roles) else frozenset()
    layout = layout_of(records)
    if layout:
        return frozenset({("layout", layout.name)})
    return frozenset(p for p in recognise(records) if p[0] in CONTENT)
