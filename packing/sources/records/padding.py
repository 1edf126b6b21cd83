"""What is padding at the ends of ids that no attention mask speaks of: named, shown, or open.

Notable:
- a padding id is named by the file (``pad_token_id``), or by a tokenizer in which it ends no text
- otherwise many rows show it: FEWEST or more for each width, half of them with a run of one id at
  that end, in LENGTHS lengths or more
- all that follows the last trained id is padding where it is one id over and over
- where nothing decides, the ids stay, and a row with a run of one id at an end says so
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packing.sources.problems import Flag

FEWEST = 4
LENGTHS = 3


class End(NamedTuple):
    """One end of a row.

    ids:     int32, from outside to inside
    outside: how many of them may be padding: those before the first that a mask trains on
    masked:  it is a mask that says so
    """

    ids: npt.NDArray[np.int32]
    outside: int
    masked: bool

    def run(self) -> int:
        """How often the outermost id stands there in a row."""
        ids = self.ids[: self.outside]
        if len(ids) < 2 or ids[0] != ids[1]:
            return min(len(ids), 1)
        other = np.flatnonzero(ids != ids[0])
        return int(other[0]) if len(other) else len(ids)

    def inner(self) -> int | None:
        """The id that the run ends at."""
        run = self.run()
        return int(self.ids[run]) if run < len(self.ids) else None


# What no attention mask speaks of at the start of a row and at its end; None where one does.
Ends = tuple[End | None, End | None]


@dataclass(frozen=True)
class Padding:
    """Padding ids at the start of rows and at their end; None where none is known.

    ends: whether the id may also end a text: then one of a last run stays
    note: what they are known from, for people, or None
    """

    ids: tuple[int | None, int | None] = (None, None)
    ends: bool = False
    note: str | None = None

    @classmethod
    def of(cls, rows: Sequence[Ends], named: int | None, end: int | None) -> Padding:
        """What the first rows say.

        named: the padding id, where the file or the tokenizer names it
        end:   the id that ends a text, or None where it is not known
        """
        ids: list[int | None] = [named, named]
        ends = end is not None and end == named
        if named is None:
            for side in (0, 1):
                found = [r[side] for r in rows]
                ids[side], shared = _shown([e for e in found if e is not None])
                ends |= side == 1 and (ids[1] == end if end is not None else shared)
            if None not in ids and ids[0] != ids[1]:
                ids = [None, None]  # of rows that begin so and end so, nobody knows which pads
        sides = ("start", "end")
        said = [f"{i} at the {s} of rows" for i, s in zip(ids, sides, strict=True) if i is not None]
        how = "shown by many rows of one width" if named is None else "the padding id"
        note = f"No attention mask: id {' and '.join(said)} is padding ({how})." if said else None
        return cls((ids[0], ids[1]), ends, note)

    def cut(self, row: Ends) -> tuple[int, int, int]:
        """(ids to take off at the start, at the end, flags). A prompt is never all padding."""
        taken, flags = [0, 0], 0
        for side, (end, pad) in enumerate(zip(row, self.ids, strict=True)):
            if end is None or not (run := end.run()):
                continue
            whole, is_pad = run == end.outside, int(end.ids[0]) == pad
            if side == 1 and pad is None and end.masked and whole and run > 1:
                taken[side] = run
            elif is_pad and not (side == 0 and whole):
                # Where the id may end a text, one stays that no trained one of it comes before.
                taken[side] = run - (side == 1 and self.ends and end.inner() != pad)
            elif run > 1 and (is_pad or pad is None):
                flags |= Flag.MAYBE_PADDED
            flags |= Flag.PADDING if taken[side] else 0
        return taken[0], taken[1], flags


def _shown(ends: Sequence[End]) -> tuple[int | None, bool]:
    """(the padding id that ends show, whether it also ends texts); (None, False) for no evidence.

    Equal ends count once: samples repeat their prompt.
    """
    different = list({e.ids.tobytes(): e for e in ends if len(e.ids)}.values())
    by_width: dict[int, list[End]] = defaultdict(list)
    for end in different:
        by_width[len(end.ids)].append(end)
    if len(different) < FEWEST * max(1, len(by_width)):
        return None, False
    outermost = Counter(int(e.ids[0]) for e in different if e.outside)
    pad, count = outermost.most_common(1)[0] if outermost else (None, 0)
    if count * 2 < len(different):
        return None, False
    lengths = {w: {e.run() * (e.ids[0] == pad) for e in of} for w, of in by_width.items()}
    if max(map(len, lengths.values())) < LENGTHS:
        return None, False
    inner = Counter(e.inner() for e in different if e.ids[0] == pad)
    return pad, inner.most_common(1)[0][1] * 2 < count
