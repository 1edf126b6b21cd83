"""The files of a job: rows in, events out, and what a crash or a full disk left of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from packing.rows import Rows
from tuning.jobs.checked import CheckError
from tuning.jobs.points import Point


def save_rows(path: Path, rows: Rows) -> None:
    """Tokens, offsets, groups and loss mask, without pickle."""
    mask = np.empty(0, dtype=np.uint8) if rows.loss_mask is None else rows.loss_mask
    with path.open("wb") as file:
        np.savez(file, tokens=rows.tokens, offsets=rows.offsets, group=rows.group, loss_mask=mask)


def load_rows(path: Path) -> Rows:
    with np.load(path, allow_pickle=False) as file:
        mask = file["loss_mask"]
        return Rows(file["tokens"], file["offsets"], file["group"], mask if len(mask) else None)


def read_events(path: Path) -> tuple[list[Mapping[str, Any]], int]:
    """Whole lines only, as the last one may still be on its way; and how many cannot be read."""
    if not path.exists():
        return [], 0
    events, broken = [], 0
    for line in path.read_bytes().split(b"\n")[:-1]:
        if not line.startswith(b"{"):
            continue  # what a library printed
        try:
            event = json.loads(line)
            event["type"] + ""
            events.append(event)
        except (ValueError, TypeError, LookupError, RecursionError):
            broken += 1
    return events, broken


def unkept_points(events: Sequence[Mapping[str, Any]]) -> list[Point]:
    """Points that the worker could not write."""
    found = []
    for event in events:
        if event["type"] == "point" and not event.get("kept", True):
            with suppress(CheckError):
                found.append(Point.from_json(event.get("point", {})))
    return found


def read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def read_object(path: Path) -> dict[str, Any]:
    """An object; an empty one where there is none that can be read."""
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
