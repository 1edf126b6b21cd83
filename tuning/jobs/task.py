"""What a running job is given, and how it speaks: one JSON line an event.

Notable:
- each kind of job is a function from a Task to the sentence that says how it ended
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from packing.rows import Rows
from tuning.jobs.host import host
from tuning.jobs.points import Point, Question
from tuning.jobs.store import Store
from tuning.plan.plan import TuningPlan

Kind = Literal["sweep", "measure", "kernels", "equivalence"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def emit(kind: str, **fields: Any) -> None:
    """Print one event."""
    event = {"type": kind, "at": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields}
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Task:
    """What a kind of job is given.

    others: batches of the data that come after ``rows``
    unkept: points by question that earlier jobs measured and the history refused (a full disk)
    """

    job: str
    plan: TuningPlan
    rows: Rows
    arguments: Mapping[str, Any]
    store: Store
    others: tuple[Rows, ...] = ()
    unkept: Mapping[str, Point] = field(default_factory=dict)

    def known(self, question: Question) -> Point | None:
        """The newest answer: the history's, or one that the history had no room for."""
        return self.store.answer(question.key) or self.unkept.get(question.key)

    def emit(self, kind: str, **fields: Any) -> None:
        """Print one event."""
        emit(kind, **fields)

    def asking(self, point: Point) -> None:
        """Say what is measured next, so that a death over it can be noted."""
        emit("asking", point=point.to_json())

    def answer(self, point: Point, known: bool = False) -> None:
        """Keep a point and show it; ``known`` ones are in the history already.

        Where the history cannot be written the event still holds the point, and ``Jobs`` adds it
        later. Raises StoreError then.
        """
        kept = known
        try:
            if not known:
                point = replace(point, host=host())
                self.store.add(self.job, self.plan, point)
                kept = True
        finally:
            emit("point", point=point.to_json(), known=known, kept=kept)
