"""The one place where text becomes markup."""

import html
import re

_CONTROL = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ufffe\\uffff]"
)


def esc(text: str) -> str:
    """Text as HTML or XML text or attribute; control characters and overrides are shown as �."""
    return html.escape(_CONTROL.sub("�", text))
