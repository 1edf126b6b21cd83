"""Foreign text on a page: the only way that data, names, links and error sentences are drawn.

Notable:
- Streamlit reads Markdown in nearly everything it draws, labels and tooltips too, and after the
  escapes are taken away it still looks for addresses, icons and arrows: a word joiner, which
  nobody sees, parts those
- what a page draws is written here or has been through ``plain``: ``tests/pages/drawn.py``
  follows every argument to where it comes from, and knows these two types as promises
"""

from __future__ import annotations

import re

from tuning.plan.foreign import visible

Markdown = str
"""Text that holds no foreign words but those that went through ``plain``."""

Html = str
"""The same for HTML and ``html.escape``."""

_JOINER = "\u2060"
_FOUND_LATER = re.compile(r":(?=[\w+/-])|@|(?i:www)(?=\.)|(?<!\S)[-<>~](?=[->=])")
_MARKS = re.compile(
    r"[\\`*\[\]<>$~#|&]|:(?!\s)|(?<![^\W_])_|_(?![^\W_])|^[-+=]|^(\d+)(?=[.)](?:\s|$))"
)


def plain(value: object) -> Markdown:
    """Any text as a line of Markdown that shows it letter by letter; nothing in it acts."""
    line = _FOUND_LATER.sub(rf"\g<0>{_JOINER}", visible(" ".join(str(value).split())))
    return _MARKS.sub(lambda m: f"{m[1]}\\" if m[1] else f"\\{m[0]}", line)
