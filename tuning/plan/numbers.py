"""How a figure is written, everywhere: separators, units, signs, one and many, dates with a zone.

Notable:
- a number below zero has a minus sign, not a hyphen; what is not known is a dash
- dates come in as ISO text with a zone and go out in UTC
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

UNKNOWN = "–"
_GIB = 2**30
_UNITS = ((10**9, " G"), (10**6, " M"), (10**3, " k"), (1, ""))
_TWICE, _EXACT, _SAME = 2.0, 100.0, 5e-4


def number(value: float | None, form: str = ",d") -> str:
    """A number in a format of Python's: ``1,234``, ``−0.50``."""
    return UNKNOWN if value is None else format(value, form).replace("-", "−")


def rounded(value: float | None, digits: int = 3) -> str:
    """So many significant figures, whole numbers kept whole, never an exponent.

    ``0.123``, ``12.3``, ``20``, ``1,234``; what is too small for 12 places is 0.
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN if value is None or math.isnan(value) else "−∞" if value < 0 else "∞"
    size = math.floor(math.log10(abs(value))) if value else 0
    text = number(value, f",.{min(max(digits - 1 - size, 0), 12)}f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "−0" else text


def about(count: float) -> str:
    """Three significant figures that can be said aloud: ``1.39 M``, ``115 k``, ``950``."""
    near = float(f"{count:.3g}")
    size, unit = next((n, u) for n, u in _UNITS if abs(near) >= n or n == 1)
    return rounded(near / size) + unit


def compared(ratio: float, things: str = "", other: str = "") -> str:
    """One amount beside another: ``92% fewer tokens than flat packing``, ``2.6 times as many``.

    ratio: the one over the other; things: what is counted; other: what the other is
    """
    more, joint = "as many", "as"
    if ratio >= _TWICE:
        more = f"{rounded(ratio, 2 if ratio < _EXACT else 3)} times as many"
    elif (part := abs(1 - ratio)) >= _SAME:
        shown = number(part, ".0%") if 0.01 <= part < 0.995 else percent(part)
        more, joint = f"{shown} {'fewer' if ratio < 1 else 'more'}", "than"
    return " ".join(word for word in (more, things, joint * bool(other), other) if word)


def many(count: int, thing: str, things: str = "") -> str:
    """``1 tree``, ``1,200 trees``, ``2 branches``; things: where an s is not enough."""
    return f"{number(count)} {thing if count == 1 else things or thing + 's'}"


def ratio(value: float | None) -> str:
    """Three places, for what is compared with 1: ``0.713``."""
    return number(value, ",.3f")


def percent(share: float | None) -> str:
    """``4.0%`` of a share of 0.04."""
    return number(share, ",.1%")


def seconds(value: float | None) -> str:
    """Milliseconds below a tenth of a second, hundredths below a hundred: ``1.82 s``."""
    if value is not None and abs(value) < 0.1:
        return milliseconds(1000 * value)
    return number(value, ",.2f" if abs(value or 0) < 100 else ",.0f") + " s" * (value is not None)


def milliseconds(value: float | None) -> str:
    """``0.123 ms``, ``12.3 ms``, ``1,230 ms``, in milliseconds however many."""
    return rounded(value) + " ms" * (value is not None)


def gib(size: int | None) -> str:
    """Bytes as ``1.40 GiB``."""
    return UNKNOWN if size is None else number(size / _GIB, ",.2f") + " GiB"


def moment(iso: str, form: str = "%Y-%m-%d %H:%M") -> str:
    """``2026-11-30 10:00 UTC`` of ISO text; text that is no date stays as it is.

    A date without a zone is taken for UTC, which is what all files of ours have.
    """
    try:
        when = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return f"{when.astimezone(UTC):{form}} UTC"
