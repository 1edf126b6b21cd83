"""Foreign text on its way out: what a terminal, a file or a spreadsheet would act on is taken away.

Names, roles, error sentences and everything else that was in somebody's data.
"""

from __future__ import annotations

import re

_CONTROL = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff\\ufffe\\uffff]"
)

_NUMBER = re.compile(r"[-+]?[\d.,]*(e[-+]?\d+)?|[-+=@]")


def visible(text: str) -> str:
    """The same, with control characters and overrides of direction shown as �."""
    return _CONTROL.sub("�", text)


def cell(value: object) -> object:
    """A value of a table of text: what a spreadsheet would take for a formula begins with ``'``.

    Numbers stay what they are; so does text that is one.
    """
    if not isinstance(value, str):
        return value
    formula = value.lstrip()[:1] in ("=", "+", "-", "@")
    return f"'{visible(value)}" if formula and not _NUMBER.fullmatch(value) else visible(value)
