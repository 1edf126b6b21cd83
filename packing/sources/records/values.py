"""Values of columns as their roles want them, decided for a whole column, never for one value.

Notable:
- text is text: JSON in it is read only where the role is a list (messages, ids, tools), or where
  every text of the column is JSON of one kind that says itself what it is
- foreign messages become OpenAI's, and foreign speakers the ones they were mapped to
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from packing.sources import fields
from packing.sources.chunks import Record
from packing.sources.dialects import as_messages, is_conversation, with_speakers
from packing.sources.errors import Where, shown
from packing.sources.role_names import COMPLETION_IDS, PLURAL, PROMPT_IDS
from packing.sources.roles import Roles

TALK_ROLES = ("messages", "prompt", "completion")


class Values:
    """Reads the role columns of records.

    packed: paths whose text is JSON, and of which kind
    """

    def __init__(
        self,
        roles: Roles,
        head: Sequence[Mapping[str, Any]],
        speakers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._speakers = dict(speakers)
        self._paths = [(r, p) for r, p in roles.pairs if r in TALK_ROLES]
        self.packed = {
            path: kind
            for role, path in self._paths
            if role != "messages" and (kind := packed_kind(_texts(head, path), role, path))
        }

    def record(self, record: Record, where: Where) -> Record:
        """A record with its values as roles want them; one that needs nothing stays as it is.

        Raises SourceError where one text of a packed column is not JSON as the others are.
        """
        for role, path in self._paths:
            read = partial(self._value, path, role == "messages" or path in self.packed, where)
            record = fields.changed(record, path, read)
        return record

    def _value(self, path: str, packed: bool, where: Where, value: Any) -> Any:
        if isinstance(value, str):
            if not packed:
                return value
            read = fields.unpacked(value)
            if isinstance(read, str) and path in self.packed:
                raise where.error(
                    f"is {shown(value, 40)}, and the rows before hold {self.packed[path]} as JSON",
                    "write every row of the column alike, or give the role to another column",
                    path,
                )
            value = read
        if isinstance(value, np.ndarray) or fields.is_ids(value):
            return value
        if isinstance(value, list) and value and isinstance(value[0], list):
            return [self._value(path, False, where, v) for v in value]
        if isinstance(value, list | Mapping) and (made := as_messages(value)) is not None:
            return with_speakers(made, self._speakers) if self._speakers else made
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            each = [as_messages(v) for v in value]
            return each if all(m is not None for m in each) else value
        return value


def packed_kind(texts: Iterable[Any], role: str, path: str) -> str | None:
    """What every text of a prompt or completion column is JSON of, or None where it is text."""
    kinds = {_kind(text, path.rsplit(".", 1)[-1], role) for text in texts}
    return next(iter(kinds)) if len(kinds) == 1 else None


def _kind(text: str, name: str, role: str) -> str | None:
    value = fields.unpacked(text)
    if isinstance(value, str):
        return None
    if is_conversation(value) or (isinstance(value, Mapping) and as_messages(value)):
        return "messages"
    if not isinstance(value, list):
        return None
    if name in (PROMPT_IDS if role == "prompt" else COMPLETION_IDS) and name.endswith("ids"):
        inner = value[0] if value and isinstance(value[0], list) else value
        return "token ids" if not inner or fields.is_ids(inner) else None
    several = role == "completion" and name in PLURAL and value
    if several and all(isinstance(v, str) or is_conversation(v) for v in value):
        return "samples"
    return None


def _texts(head: Sequence[Mapping[str, Any]], path: str) -> list[str]:
    """Texts of a column, where all of it is text."""
    found = [v for record in head for _, v in fields.find(record, path) if v is not None]
    return found if all(isinstance(v, str) for v in found) else []
