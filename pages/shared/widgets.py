"""What pages draw alike: charts, tables, downloads, the way to the Tune page."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from packing.sources.spec import SourceSpec
from pages.shared.text import Markdown, plain
from tuning.report.figures.style import saved_as

_COUNTS = (
    *("tree", "rank", "minibatch", "rows", "nodes", "node", "depth", "trees", "max_tokens_per_mb"),
    *("tokens", "padding", "row tokens", "starts at", "tokens saved", "below node"),
    *("full tiles", "partial tiles", "empty tiles", "original tokens/s"),
)
_THREE = (
    *("tree_token_ratio", "paid ÷ original", "flat ÷ original", "worst paid ÷ original"),
    *("step, s", "compute_logp, s", "predicted, s", "worst predicted, s", "fastest step, s"),
    *("A, s", "B, s", "B ÷ A"),
)
_FORMATS = (
    dict.fromkeys(_COUNTS, "localized")
    | dict.fromkeys(_THREE, "%.3f")
    | {"reuse ×": "%.2f", "memory, GiB": "%.2f", "block efficiency": "percent"}
)
"""How the numbers of a column are written, by its name."""


def table(lines: Any, columns: dict[str, Any] | None = None, **more: Any) -> Any:
    """A table of lines or columns; columns: the look of those that need their own."""
    frame = pd.DataFrame(lines)
    formats = {
        name: st.column_config.NumberColumn(format=form)
        for name, form in _FORMATS.items()
        if name in frame and pd.api.types.is_numeric_dtype(frame[name])
    }
    return st.dataframe(frame, hide_index=True, column_config=formats | (columns or {}), **more)


def chart(figure: go.Figure, name: str, alt: str) -> None:
    """A figure that is saved as ``espalier-NAME.png``, dashes for lines below."""
    st.plotly_chart(figure, key=name, config=saved_as(name.replace("_", "-")), alt=alt)


def download(
    label: Markdown,
    make: Callable[[], str | bytes],
    file_name: str,
    key: str,
    look: Literal["primary", "secondary"] = "primary",
    icon: Markdown = "download",
    help: Markdown | None = None,
) -> None:
    """A button for a file that is made when it is asked for."""
    st.download_button(
        label,
        make,
        file_name,
        mimetypes.guess_type(file_name)[0] or "application/octet-stream",
        key,
        help,
        on_click="ignore",
        type=look,
        icon=f":material/{icon}:",
    )


def draw_asked(source: SourceSpec, load: Callable[[], None], key: str) -> None:
    """What a link would load, and the click that it waits for."""
    where = "asks the Hugging Face Hub" if source.leaves_machine else "may take long"
    tokenizer = f", tokenizer {source.tokenizer}" if source.tokenizer else ""
    st.info(
        f"It would load {plain(f'{source.location}{tokenizer}')}, which {where}.",
        icon=":material/link:",
    )
    st.button("Load it", on_click=load, icon=":material/download:", key=f"{key}.load")


def draw_unread(what: Markdown, unread: Mapping[Any, str], move: Callable[[], None]) -> None:
    """What was passed over because it cannot be read, and a button that moves it out of the way."""
    key, why = next(iter(unread.items()))
    st.warning(
        f"{len(unread):,} {what} cannot be read and are passed over. {plain(key)}: {plain(why)}",
        icon=":material/report:",
    )
    st.button(
        "Move them aside", on_click=move, icon=":material/drive_file_move:", key=f"{what}.aside"
    )


def to_tune(label: Markdown = "Measure on the Tune page", icon: Markdown = "arrow_forward") -> None:
    st.page_link("tune/page.py", label=label, icon=f":material/{icon}:")


def with_chosen(known: Sequence[str], chosen: str) -> list[str]:
    """What can be chosen, and what is, where that is something else."""
    return [*dict.fromkeys([*known, chosen])]
