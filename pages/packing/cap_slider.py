"""The slider of max_tokens_per_mb: a range and a number, sent at once.

Notable:
- Streamlit's own slider waits a fifth of a second before it tells the server, which is longer than
  packing millions of tokens takes; this one tells at the first move and then as fast as it can
- both inputs are the browser's own: arrow keys, Page Up and Down, Home and End work
- a typed number is taken as it is: where AReaL refuses it, the page says so and what would do
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pages.shared import state
from pages.shared.canvas import component

_MOST = 2**31 - 1
_HTML = """
<div class="cap"><label for="range">max_tokens_per_mb</label>
<div class="line"><input id="range" type="range">
<input id="number" type="number" aria-label="max_tokens_per_mb, typed"></div>
<div class="ends"><span class="low"></span><span class="step"></span><span class="high"></span>
</div></div>
"""
_CSS = """
.cap { font: 0.875rem/1.4 var(--st-font); color: var(--st-text-color); }
.line { display: flex; gap: 1rem; align-items: center; min-height: 2.5rem; }
#range { flex: 1; min-width: 4rem; margin: 0;
  /* On a dark page a dark accent would make the browser paint a white track. */
  accent-color: light-dark(var(--st-primary-color), #6cc595);
  cursor: pointer; }
#number { width: 7rem; padding: 0.4rem 0.6rem; font: 600 1rem/1.3 var(--st-font);
  font-variant-numeric: tabular-nums; color: inherit; box-sizing: border-box;
  background: var(--st-secondary-background-color); border: 1px solid var(--st-border-color);
  border-radius: var(--st-base-radius); }
.ends { display: flex; justify-content: space-between; margin-right: 8rem; font-size: 0.75rem;
  opacity: 0.75; font-variant-numeric: tabular-nums; }
"""
_component = component(
    "cap_slider", "max_tokens_per_mb", _HTML, _CSS, Path(__file__).with_name("cap_slider.js")
)


def cap_slider(low: int, high: int, step: int) -> None:
    """Draw it over ``low, low + step … high`` tokens and bind it to the plan's cap."""

    def moved(cap: Any) -> None:
        if isinstance(cap, int) and 0 < cap <= _MOST:
            state.update(max_tokens_per_mb=cap)

    cap = state.plan().max_tokens_per_mb
    _component({"cap": cap, "low": low, "high": high, "step": step}, moved=moved)
