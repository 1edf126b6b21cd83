"""Which rows were sampled from one prompt: by what the records say of it, or by the prompt itself.

Notable:
- ``1``, ``1.0`` and ``"1"`` are one id: tables with gaps make numbers of ids, CSV makes text
- a step of training beside the id sets groups of different steps apart
- the same id in another file is the same group only if its prompt is the same, or the files are
  numbered parts of one set
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packing.sources import fields
from packing.sources.build import Built
from packing.sources.chunks import Record
from packing.sources.drafts import required
from packing.sources.errors import SourceError, Where
from packing.sources.roles import Roles
from packing.sources.spec import DROPPED, SourceSpec

# Files that are written in pieces: the pieces share their ids.
_PART = re.compile(r"(?:-\d+-of-\d+|(?:part|shard|chunk)[-_]?\d+)(?=\.|$)", re.IGNORECASE)
_WHOLE = re.compile(r"-?\d+\.0+")


class Groups:
    """The group of each row, as any hashable value that rows of one group share."""

    def __init__(self, roles: Roles) -> None:
        self._group, self._step = roles.first("group"), roles.first("step")
        self._spaces: dict[str, dict[Hashable, str]] = {}
        self._in_file: dict[tuple[str, str], str] = {}
        self.apart: set[str] = set()

    def of(self, record: Record, where: Where, key: Hashable, number: int) -> Hashable:
        """The group of a row.

        key:    equal for rows of one prompt; None where the row does not show its prompt
        number: of the record, for a row that nothing is known of

        Raises SourceError where an id is neither a name nor a number.
        """
        step = str(fields.first(record, self._step)) if self._step else None
        if self._group is None:
            own: Hashable = ("record", number) if key is None else key
            return (own, step) if step is not None and key is not None else own
        name = named(required(record, self._group, where), where, self._group)
        return name, step, self._space(name, where.file, key)

    def _space(self, name: str, file: str, key: Hashable) -> str:
        """Whose ids these are: of a set of files, or of the file that first had this prompt."""
        if (part := _PART.sub("", file)) != file:
            return part
        known = self._in_file.get((name, file))
        if known is None:
            seen = self._spaces.setdefault(name, {})
            known = seen.get(key, file) if key is not None else file
            if seen and known == file:
                self.apart.add(name)
            seen.setdefault(key, known)
            self._in_file[name, file] = known
        return known

    def notes(self) -> list[str]:
        """Sentences that a person should read beside the number of groups."""
        if not self.apart:
            return []
        return [
            f"{len(self.apart):,} group ids are in several files with other prompts: they are "
            "different groups."
        ]

    def sentence(self) -> str:
        """What makes a group of these rows."""
        if self._group is None:
            return "rows of one prompt" + (f" and one '{self._step}'" if self._step else "")
        return f"rows of one '{self._group}'" + (f" and one '{self._step}'" if self._step else "")


def named(value: Any, where: Where, path: str) -> str:
    """A group's id as text, the same for a number and its text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value != value:
        raise where.unlike(
            value,
            "one name or number",
            "give each row the name of its group",
            path,
        )
    text = str(value)
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else text


def dropped(
    group: npt.NDArray[np.int32],
    rewards: npt.NDArray[np.float64] | None,
    samples: Sequence[int] | npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """(rows of groups with equal rewards, rows of incomplete groups), bool ``(rows,)`` each.

    samples: of each row, the sample it is of (rows of several turns share one)

    AReaL's ``dynamic_filter_fn`` recipes leave out groups whose rewards are all equal: they have
    no advantage. ``drop_incomplete_group`` leaves out those with fewer samples than the largest.
    """
    n = len(group)
    equal = np.zeros(n, dtype=bool)
    number = np.unique(group, return_inverse=True)[1] if n else np.zeros(0, dtype=np.int64)
    count = int(number.max()) + 1 if n else 0
    if rewards is not None and count:
        low, high = np.full(count, np.inf), np.full(count, -np.inf)
        known = np.where(np.isnan(rewards), np.inf, rewards)
        np.minimum.at(low, number, known)
        np.maximum.at(high, number, np.where(np.isnan(rewards), np.inf, rewards))
        equal = ((low == high) & np.isfinite(high))[number]
    pairs = np.unique(np.stack([number, np.asarray(samples, dtype=np.int64)]), axis=1)
    sizes = np.bincount(pairs[0], minlength=count) if n else np.zeros(0, dtype=np.int64)
    incomplete = (sizes < sizes.max())[number] if n else np.zeros(0, dtype=bool)
    return equal, incomplete


def without_dropped(built: Built, spec: SourceSpec) -> tuple[Built, dict[str, int]]:
    """Rows without the groups that AReaL would drop, and how many groups of each kind there are."""
    rows = built.rows
    samples = built.records if spec.expand == "turn" else np.arange(len(rows))
    kinds = dict(zip(DROPPED, dropped(rows.group, built.rewards, samples), strict=True))
    counts = {
        kind: len(np.unique(rows.group[at]))
        for kind, at in kinds.items()
        if at.any() and (kind in spec.leave_out or kind == "equal-rewards" or not at.all())
    }
    out = np.zeros(len(rows), dtype=bool)
    for kind in spec.leave_out:
        out |= kinds[kind]
    if not out.any():
        return built, counts
    if out.all():
        raise SourceError(
            f"{spec.location}: AReaL would drop every group ({' and '.join(spec.leave_out)}); "
            "read them with the rest."
        )
    return built.only(np.flatnonzero(~out)), counts
