"""The few rules of CSS that Streamlit's theme has no option for."""

from __future__ import annotations

import streamlit as st

from tuning.report.figures.chart import PALETTE

_PALETTE = "".join(f"--{name}:light-dark({', '.join(pair)});" for name, pair in PALETTE.items())
_CSS = """
<style>
.summary { display: flex; flex-wrap: wrap; gap: 0.2rem 1.6rem; align-items: baseline;
  font-variant-numeric: tabular-nums; min-height: 2.4rem; }
.summary div { display: flex; flex-direction: column; line-height: 1.25; }
.summary span { font-size: 0.7rem; opacity: 0.7; }
.summary b { font-size: 0.98rem; font-weight: 600; white-space: nowrap; }
.summary .name b { max-width: 22rem; overflow: hidden; text-overflow: ellipsis; }
.tag { font-size: 0.68rem; border: 1px solid currentColor; border-radius: 0.6rem;
  padding: 0 0.45rem; opacity: 0.85; margin-left: 0.4rem; font-weight: 500; }
.st-key-summary { border-bottom: 1px solid rgba(128, 128, 128, 0.3); padding-bottom: 0.5rem; }
.st-key-headline h1 { font-size: clamp(1.8rem, 4.2vw, 3.2rem); line-height: 1.1; padding: 0; }
.token-text { font-family: ui-monospace, monospace; font-size: 0.82rem; line-height: 1.7;
  white-space: pre-wrap; word-break: break-word; max-height: 26rem; overflow-y: auto; }
.token-text span { border-radius: 2px; }
.token-text .t0 { background: color-mix(in srgb, var(--blue) 16%, transparent); }
.token-text .t1 { background: color-mix(in srgb, var(--orange) 18%, transparent); }
.token-text .special { background: color-mix(in srgb, var(--pink) 32%, transparent);
  font-weight: 600; }
.token-text .off { opacity: 0.74; }
.token-text mark { color: inherit; background: color-mix(in srgb, var(--red) 28%, transparent);
  border-radius: 2px; }
@media (max-width: 60rem) {
  :is(.st-key-branch, .st-key-answer) > * > .stHorizontalBlock { flex-direction: column; }
  :is(.st-key-branch, .st-key-answer) > * > .stHorizontalBlock > .stColumn { width: 100%; }
}
[data-testid="stMetricValue"] { font-variant-numeric: tabular-nums; }
/* On a narrow page, or one that is zoomed, hero figures go to the next line: none is cut. */
.stHorizontalBlock:has(> .stColumn > .stVerticalBlock > * > [data-testid="stMetric"]) {
  flex-wrap: wrap; }
.stHorizontalBlock:has(> .stColumn > .stVerticalBlock > * > [data-testid="stMetric"]) > .stColumn {
  min-width: 10rem; }
.stApp :is([data-testid="stMetricValue"], [data-testid="stMetricLabel"]) * {
  overflow: visible; white-space: normal; overflow-wrap: anywhere; }
.stApp a:focus-visible { outline: 2px solid light-dark(#1f6b45, #6cc595); outline-offset: 2px;
  box-shadow: none; }
/* Streamlit's own greys and code colours are too faint to read on our pages. */
.stApp [data-testid="stCaptionContainer"] { opacity: 0.74; }
.stApp [data-testid="stCaptionContainer"] code { color: inherit; }
.stApp :is(.stButtonGroup button, [role="tab"]):is([data-selected], [data-hovered]),
.stApp button:is([kind="secondary"], [kind="tertiary"]):hover:enabled,
.stApp .stExpander summary:hover { color: light-dark(#1f6b45, #6cc595) !important; }
.stApp .stCode .token:is(.comment, .punctuation) { color: light-dark(#5c6266, #9fa9a5); }
.stApp .stCode .token:is(.atrule, .attr-name, .variable, .operator) {
  color: light-dark(#00618a, #7fc4ef); }
.stApp .stCode .token:is(.number, .boolean) { color: light-dark(#8a4b00, #f0b866); }
.stApp .stCode .token:is(.string, .char) { color: light-dark(#1f6b45, #8fd6ab); }
.stApp .stCode .token:is(.keyword, .builtin, .function, .class-name) {
  color: light-dark(#6b3a8f, #cfa9ee); }
/* Streamlit's widgets keep an element that leaves in the middle of a transition, and its page. */
.stApp details, .stApp [data-testid="stNumberInputContainer"] { transition: none !important; }
</style>
"""


def apply() -> None:
    st.html(_CSS.replace("<style>", f"<style>.stApp {{ {_PALETTE} }}"))
