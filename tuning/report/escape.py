"""The one place where text becomes markup."""

from __future__ import annotations

import html

from tuning.plan.foreign import visible


def esc(text: str) -> str:
    """Text as HTML or XML text or attribute; control characters and overrides are shown as �."""
    return html.escape(visible(text))
