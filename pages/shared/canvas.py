"""What the drawings share: a component of our own, our colours, arrays as text."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import streamlit as st

from tuning.report.figures.chart import COLORS, PALETTE

_MODES = ("light", "dark")
_CSS = """
.tip { position: absolute; pointer-events: none; padding: 4px 8px; border-radius: 4px;
  max-width: min(26rem, 90%); background: var(--st-text-color); color: var(--st-background-color);
  white-space: pre-wrap; overflow-wrap: anywhere; z-index: 5; font: 12px/1.45 var(--st-font); }
.live { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 1px; }
"""


def component(key: str, label: str, html: str, css: str, *scripts: Path) -> Callable[..., None]:
    """A canvas component made of ``canvas.js`` and the scripts given, which share one scope.

    label: what the drawing is, from the first moment on; its script says more once it has data
    Returns what draws it, from its ``data`` and a function for the value of each trigger by name.
    """
    shared = Path(__file__).with_name("canvas.js")
    text = "\n".join(script.read_text("utf-8") for script in (shared, *scripts))
    colors = {mode: {name: PALETTE[name][i] for name in COLORS} for i, mode in enumerate(_MODES)}
    text = f"const PALETTE = {json.dumps(colors)};\n{text}"
    mount = st.components.v2.component(
        f"espalier_{key}", html=labelled(html, label), css=_CSS + css, js=text
    )

    def hear(trigger: str, act: Callable[[Any], None]) -> None:
        value = st.session_state[key].get(trigger)
        if value is not None:
            act(value)

    def draw(data: Mapping[str, Any], **acts: Callable[[Any], None]) -> None:
        heard: dict[str, Any] = {
            f"on_{name}_change": partial(hear, name, act) for name, act in acts.items()
        }
        mount(key=key, data=data, **heard)

    return draw


def labelled(html: str, label: str) -> str:
    """``html`` with a name on whatever has a role: a drawing must never be one without words."""
    return re.sub(r'\brole="\w+"', rf'\g<0> aria-label="{escape(label)}"', html)


def packed(array: npt.ArrayLike, dtype: type[np.generic]) -> str:
    """An array as base64: 50,000 numbers are a quarter of a megabyte."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode()
