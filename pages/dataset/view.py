"""What was loaded: figures, lengths, oddities, rows, and one row token by token."""

from __future__ import annotations

import io
import json
from dataclasses import asdict

import numpy as np
import numpy.typing as npt
import pandas as pd
import streamlit as st

from packing.rows import Rows
from packing.sources.chat.tokenizer import BUNDLED
from packing.sources.files.columnar import write_npz
from packing.sources.load import OTHER_TOKENIZER
from packing.sources.loaded import Loaded
from packing.sources.problems import Flag, over_context
from packing.sources.spec import DROPPED
from pages.shared import data, state, tokens
from pages.shared.text import plain
from tuning.advice import WORTH, sharing
from tuning.plan.batch import Batch
from tuning.report.figures.lengths import length_histogram
from tuning.report.figures.style import saved_as

_TABLE_ROWS = 1000
_TEXT_TOKENS = 60
_ROW_TOKENS = 1500


def draw_sharing(batch: Batch) -> None:
    """Whether the rows share anything, at a glance."""
    unique, tokens = batch.trie.n_tokens, batch.rows.n_tokens
    words = plain(sharing(unique, tokens))
    if unique < WORTH * tokens:
        st.success(
            f"A tree computes once what is shared: {plain(words)}.", icon=":material/account_tree:"
        )
    else:
        st.warning(f"Nothing to gain here: {plain(words)}.", icon=":material/block:")


def draw_figures(loaded: Loaded) -> None:
    rows, source = loaded.rows, loaded.provenance
    per_group = np.bincount(np.unique(rows.group, return_inverse=True)[1]) if len(rows) else [0]
    few, many = int(np.min(per_group)), int(np.max(per_group))
    columns = st.columns(5)
    columns[0].metric("rows", f"{len(rows):,}")
    columns[1].metric("groups (prompts)", f"{rows.n_groups:,}")
    columns[2].metric("rows per group", f"{few:,}" if few == many else f"{few:,}–{many:,}")
    columns[3].metric("tokens", f"{rows.n_tokens:,}")
    columns[4].metric("longest row", f"{rows.longest:,}")
    made = f", tokenizer {source.tokenizer}" if source.tokenizer else ", token ids as they are"
    kept = ", from the cache" if source.from_cache else ""
    st.caption(
        f"{plain(data.source_name(loaded.spec))}: {source.records:,} records of "
        f"{plain(f'{source.format}{made}{kept}')}. Content {plain(source.content)}."
    )
    st.caption(
        f"Groups: {plain(source.grouped_by)}. Tokens: "
        + " · ".join(
            f"{count:,} rows {plain(words)}" for words, count in loaded.origin_counts.items()
        )
    )
    if source.tokenizer == BUNDLED and source.notes and OTHER_TOKENIZER in source.notes:
        st.warning(OTHER_TOKENIZER, icon=":material/straighten:")
    for note in source.notes:
        if note != OTHER_TOKENIZER:
            st.info(plain(note), icon=":material/info:")
    draw_left_out(loaded)
    st.download_button(
        "Download the rows",
        lambda: _npz(rows),
        "rows.npz",
        on_click="ignore",
        icon=":material/download:",
        key="rows_npz",
        help="tokens, offsets, groups and, where it is known, loss_mask: numpy reads them.",
    )


def _npz(rows: Rows) -> bytes:
    out = io.BytesIO()
    write_npz(rows, out)
    return out.getvalue()


def draw_left_out(loaded: Loaded) -> None:
    """Files, records and groups that are not among the rows."""
    source = loaded.provenance
    if source.left_out_files:
        some = ", ".join(plain(name) for name in source.left_out_files[:5])
        more = " …" if len(source.left_out_files) > 5 else ""
        st.caption(f"Left out, no such rows in them: {some}{more}")
    for kind, count in source.left_out_groups.items():
        out = kind in loaded.spec.leave_out
        st.caption(
            f"{count:,} groups {DROPPED[kind]}: "
            + ("left out." if out else "AReaL may drop them; they are counted here.")
        )
    if loaded.odd:
        first = loaded.odd[0]
        st.warning(f"Odd records left out: {source.left_out_records:,}. First: {plain(first.why)}")
        st.download_button(
            "Download the odd records",
            "".join(json.dumps(asdict(o), ensure_ascii=False) + "\n" for o in loaded.odd),
            "odd-records.jsonl",
            on_click="ignore",
            icon=":material/download:",
            key="odd_jsonl",
        )


def draw_lengths(loaded: Loaded) -> None:
    """Lengths of rows, prompts and completions, with percentiles and the cap."""
    kinds: dict[str, npt.NDArray[np.int64]] = {"rows": loaded.rows.lengths}
    if loaded.prompt_lengths is not None:
        kinds["prompts"] = loaded.prompt_lengths
        kinds["completions"] = loaded.rows.lengths - loaded.prompt_lengths
    chosen = st.segmented_control(
        "lengths of", list(kinds), default="rows", key="lengths_of", persist_state="session"
    )
    kind = chosen or "rows"
    lengths = kinds[kind]
    cap = state.plan().max_tokens_per_mb
    st.plotly_chart(
        length_histogram(lengths, cap if kind == "rows" else None, f"tokens in a {kind[:-1]}"),
        key="lengths",
        config=saved_as("lengths"),
        alt=f"Histogram of the lengths of {kind}.",
    )
    if len(lengths):
        marks = np.percentile(lengths, [50, 90, 99, 100]).astype(np.int64)
        names = ("median", "p90", "p99", "longest")
        st.caption(
            " · ".join(f"{name} {value:,}" for name, value in zip(names, marks, strict=True))
        )
    over = int((loaded.rows.lengths > cap).sum())
    if over:
        st.warning(
            f"{over:,} rows are longer than max_tokens_per_mb ({cap:,}): AReaL would stop there.",
            icon=":material/block:",
        )


def draw_batch(loaded: Loaded) -> None:
    """How many prompts one training step takes."""
    left, right = st.columns(2, vertical_alignment="bottom")
    left.number_input(
        "prompts per step",
        0,
        help=f"The first so many of {loaded.rows.n_groups:,} groups make one global batch; 0: all.",
        **state.bind("prompts_per_step"),
    )
    right.number_input(
        "samples per prompt",
        0,
        help="Rows kept of each group; 0: all.",
        **state.bind("samples_per_prompt"),
    )
    total = sum(loaded.role_tokens.values())
    if total:
        shares = sorted(loaded.role_tokens.items(), key=lambda item: -item[1])
        st.caption(
            "tokens by role: "
            + " · ".join(f"{plain(r)} {n:,} ({n / total:.0%})" for r, n in shares if n)
        )


def draw_problems(loaded: Loaded) -> None:
    context = st.number_input(
        "the model's context, tokens",
        0,
        key="context",
        persist_state="session",
        help="0: not checked.",
    )
    long = over_context(loaded.rows, int(context)) if context else None
    if long is not None:
        rows = ", ".join(f"{r:,}" for r in long.examples)
        st.warning(f"{long.count:,} {plain(long.sentence)} — rows {rows}")
    if not loaded.problems:
        if long is not None or loaded.odd:
            return
        st.success("Nothing odd was found in these rows.", icon=":material/check:")
        return
    st.markdown("**Worth a look**")
    for problem in loaded.problems:
        rows = ", ".join(f"{r:,}" for r in problem.examples)
        st.markdown(f"{problem.count:,} {plain(problem.sentence)} — rows {rows}")


def draw_rows(loaded: Loaded) -> None:
    """A searchable table, and the chosen row as tokens."""
    if not len(loaded.rows):
        return
    st.header("Rows", anchor=False)
    columns = st.columns([3, 2])
    text = columns[0].text_input(
        "search text",
        key="row_search",
        persist_state="session",
        placeholder="words in the first tokens of a row",
    )
    kinds = ["all rows", *(p.kind for p in loaded.problems)]
    kind = columns[1].selectbox("filter", kinds, key="row_filter")
    at = np.arange(len(loaded.rows))
    if kind != "all rows":
        at = np.flatnonzero(loaded.flags & np.uint16(Flag[kind.upper()]))
    found, searched = _search(loaded, at, text)
    table = pd.DataFrame(
        {
            "row": found,
            "group": loaded.rows.group[found],
            "tokens": loaded.rows.lengths[found],
            **({} if loaded.prompt_lengths is None else {"prompt": loaded.prompt_lengths[found]}),
            **({} if loaded.rewards is None else {"reward": loaded.rewards[found]}),
            "text": [_text(loaded, int(r)) for r in found],
        }
    )
    picked = st.dataframe(
        table,
        hide_index=True,
        height=260,
        key="rows_table",
        on_select="rerun",
        selection_mode="single-row",
    )
    if searched < len(at):
        st.caption(f"The first {searched:,} of {len(at):,} rows are listed.")
    if picked.selection.rows:
        state.set_view(row=int(found[picked.selection.rows[0]]))
    row = min(state.view("row"), len(loaded.rows) - 1)
    start, end = int(loaded.rows.offsets[row]), int(loaded.rows.offsets[row + 1])
    st.markdown(f"**Row {row:,}**, {end - start:,} tokens; dim tokens are not trained on.")
    mask = loaded.rows.loss_mask
    tokens.draw(
        loaded.rows,
        loaded.rows[row][:_ROW_TOKENS],
        None if mask is None else mask[start : start + _ROW_TOKENS],
    )


def _search(
    loaded: Loaded, at: npt.NDArray[np.int64], text: str
) -> tuple[npt.NDArray[np.int64], int]:
    """Rows to list, and how many were looked at."""
    if not text.strip():
        return at[:_TABLE_ROWS], min(len(at), _TABLE_ROWS)
    looked = at[: 20 * _TABLE_ROWS]
    words = text.casefold()
    hits = [r for r in looked.tolist() if words in _text(loaded, r, 400).casefold()]
    return np.array(hits[:_TABLE_ROWS], dtype=np.int64), len(looked)


def _text(loaded: Loaded, row: int, first: int = _TEXT_TOKENS) -> str:
    return " ".join(loaded.rows.text(loaded.rows[row][:first]).split())
