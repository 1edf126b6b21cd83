"""What the drawings of the Trie page share: a component of our own, arrays as text."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import streamlit as st

_CSS = """
.tip { position: absolute; pointer-events: none; padding: 4px 8px; border-radius: 4px;
  max-width: min(26rem, 90%); background: var(--st-text-color); color: var(--st-background-color);
  white-space: pre-wrap; overflow-wrap: anywhere; z-index: 5; font: 12px/1.45 var(--st-font); }
.live { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 1px; }
"""


def component(name: str, html: str, css: str, *scripts: Path) -> Callable[..., Any]:
    """A canvas component made of ``canvas.js`` and the scripts given, which share one scope."""
    shared = Path(__file__).with_name("canvas.js")
    text = "\n".join(script.read_text("utf-8") for script in (shared, *scripts))
    return st.components.v2.component(name, html=html, css=_CSS + css, js=text)


def packed(array: npt.ArrayLike, dtype: type[np.generic]) -> str:
    """An array as base64: 50,000 numbers are a quarter of a megabyte."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode()
