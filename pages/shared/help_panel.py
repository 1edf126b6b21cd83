"""The words of this field, each with a tiny picture."""

from __future__ import annotations

import base64
import html

import streamlit as st

from pages.shared.text import Html

_GREEN, _LIGHT, _GREY, _RED = "#14806a", "#8fc7b0", "#8a8f98", "#d55e00"
_CSS = """
<style>
.words div { display: flex; gap: 1rem; align-items: center; padding: 0.25rem 0; }
.words i { flex: none; width: 96px; height: 40px; }
.words p { margin: 0; font-size: 0.9rem; }
</style>
"""


def _svg(*boxes: tuple[float, float, float, float, Html]) -> Html:
    drawn = "".join(
        f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="1.5" fill="{c}"/>'
        for x, y, w, h, c in boxes
    )
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 96 40">{drawn}</svg>'
    # Streamlit empties an svg that stands in its HTML by itself.
    text = base64.b64encode(svg.encode()).decode()
    return f'<i style="background-image: url(data:image/svg+xml;base64,{html.escape(text)})"></i>'


_TREE = [
    (2, 4, 40, 9, _GREEN),
    (44, 4, 24, 9, _LIGHT),
    (44, 16, 36, 9, _LIGHT),
    (44, 28, 14, 9, _LIGHT),
]
_ROWS = [(2, y, 40, 9, _GREEN) for y in (4, 16, 28)]
_TAILS = [(44, 4, 24, 9, _LIGHT), (44, 16, 36, 9, _LIGHT), (44, 28, 14, 9, _LIGHT)]
_FRAME = (0, 12, 94, 16, _GREY)

WORDS = {
    "row": (
        "One training sequence: prompt and completion. Samples of one prompt form a group.",
        _svg(*_ROWS, *_TAILS),
    ),
    "trie": (
        "Rows that start with the same tokens share them; where they part, the trie branches. "
        "A shared token is computed once.",
        _svg(*_TREE),
    ),
    "tree_token_ratio": (
        "Tokens in the trees ÷ tokens in the rows. AReaL logs it. Lower is better; its reciprocal "
        "is the prefix reuse. It leaves padding out.",
        _svg(*_TREE),
    ),
    "max_tokens_per_mb": (
        "The most tokens of one tree. Small: prompts are repeated in many trees. Large: more "
        "sharing, more memory, and more padding in the last trees.",
        _svg(_FRAME, (2, 14, 70, 12, _GREEN)),
    ),
    "paid": (
        "Every tree is padded to max_tokens_per_mb, and all ranks run as many trees as the slowest "
        "one. Paid tokens count all of that.",
        _svg(_FRAME, (2, 14, 60, 12, _GREEN)),
    ),
    "fill": (
        "Tokens in trees ÷ room in trees. The rest is padding, computed and thrown away.",
        _svg(_FRAME, (2, 14, 60, 12, _GREEN)),
    ),
    "dummy tree": (
        "An empty tree, all padding, that a rank runs so that it stays in step with a rank that "
        "has more trees.",
        _svg((0, 2, 94, 16, _GREY), (2, 4, 80, 12, _GREEN), (0, 22, 94, 16, _GREY)),
    ),
    "minibatch": (
        "An update may be cut into ppo_n_minibatches parts, an optimizer step each. AReaL deals "
        "single rows to them, so samples of one prompt part, and what they share is paid again.",
        _svg(*_ROWS[:1], *_TAILS[:1], (2, 24, 40, 9, _RED), (44, 24, 36, 9, _LIGHT)),
    ),
    "bound": (
        "What no packer can do without, given these ranks and minibatches: the fewest trees and "
        "the fewest tokens. A packing that meets it is optimal.",
        _svg((2, 14, 70, 12, _GREEN), (72, 6, 2, 28, _RED)),
    ),
    "attention area": (
        "The pairs of a token and a token that it may look at, in all trees ÷ in all rows by "
        "themselves. Attention costs by this area, everything else by tokens.",
        _svg((2, 2, 36, 36, _GREY), (2, 2, 16, 36, _GREEN), (18, 20, 20, 18, _GREEN)),
    ),
    "dispatch": (
        "How AReaL shares prompts over ranks: the controller weighs a prompt by rows × longest "
        "row, spmd by its tokens. All rows of a prompt stay on one rank.",
        _svg((2, 4, 44, 12, _GREEN), (50, 4, 44, 12, _LIGHT), (2, 24, 30, 12, _GREEN)),
    ),
    "compute_logp": (
        "AReaL's forward pass over the whole batch before the update, where it recomputes "
        "log-probabilities. It packs by itself, without minibatches.",
        _svg((2, 14, 40, 12, _LIGHT), (46, 14, 48, 12, _GREEN)),
    ),
    "cascade": (
        "Our attention for CPUs: each node of the tree once for all rows below it, and the parts "
        "merged exactly.",
        _svg(*_TREE),
    ),
    "block efficiency": (
        "Attention works in tiles of the mask. Visible pairs ÷ pairs in the tiles that must be "
        "visited; the rest is masked work.",
        _svg(
            (2, 2, 36, 36, _GREY),
            (4, 4, 32, 16, _GREEN),
            (44, 2, 36, 36, _GREY),
            (46, 4, 32, 32, _GREEN),
        ),
    ),
    "step": (
        "One training step on the whole batch of one rank: forward, loss, backward of every "
        "micro-batch, and the optimizer.",
        _svg((2, 14, 30, 12, _GREEN), (34, 14, 44, 12, _LIGHT), (80, 14, 12, 12, _RED)),
    ),
    "divergence": (
        "A place where rows part although almost the same text follows: a date or an id early in "
        "the prompt, stripped reasoning, another tokenisation.",
        _svg(
            (2, 8, 30, 9, _GREEN),
            (34, 8, 6, 9, _RED),
            (42, 8, 48, 9, _LIGHT),
            (34, 22, 6, 9, _RED),
            (42, 22, 48, 9, _LIGHT),
        ),
    ),
}


def draw(*words: str) -> None:
    """A panel that explains these words."""
    lines = (
        f"<div>{picture}<p><b>{html.escape(word)}</b>: {html.escape(text)}</p></div>"
        for word in words
        for text, picture in [WORDS[word]]
    )
    with st.expander("What the words mean", icon=":material/help:"):
        st.html(f'{_CSS}<div class="words">{"".join(lines)}</div>')
