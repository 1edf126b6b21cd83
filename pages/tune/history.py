"""What was measured before: runs, two of them to the Compare page, export, delete."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import streamlit as st

from pages.shared import state
from pages.shared.text import plain
from pages.shared.widgets import download, draw_unread, table
from tuning.jobs.store import Entry, Store, StoreError
from tuning.plan.batch import Batch
from tuning.plan.numbers import moment
from tuning.workspace.history import Run, export, runs


def draw(batch: Batch) -> None:
    """All runs of this machine's history, those of these rows first."""
    with st.expander("History", icon=":material/history:"):
        try:
            store = Store()
            found = runs(store)
        except StoreError as error:
            st.error(plain(error), icon=":material/error:")
            return
        if not found and not store.unread:
            st.caption("Nothing has been measured yet.")
            return
        if store.unread:
            draw_unread("points of the history", store.unread, store.set_aside)
        found.sort(key=lambda run: run.data != batch.rows.fingerprint)
        chosen = _chosen(found, batch)
        _actions(store, chosen or found, everything=not chosen)
        if len(chosen) == 2:
            _to_compare(*chosen)


def _chosen(found: list[Run], batch: Batch) -> list[Run]:
    picked = table(
        [_line(run, batch) for run in found],
        key="history_table",
        on_select="rerun",
        selection_mode="multi-row",
    )
    st.caption("Select two runs to compare them; one or more to export or delete them.")
    return [found[i] for i in picked.selection.rows if i < len(found)]


def _line(run: Run, batch: Batch) -> dict[str, object]:
    best = run.fastest
    return {
        "when": moment(run.when),
        "rows": "these" if run.data == batch.rows.fingerprint else run.plan.source.location,
        "model": run.plan.model,
        "device": run.entries[0].point.question.machine + ("" if run.own else ", a colleague's"),
        "points": len(run.entries),
        "fastest cap": None if best is None else best.point.question.max_tokens_per_mb,
        "fastest step, s": None if best is None else best.point.step_s,
        "run": run.id,
    }


def _actions(store: Store, chosen: list[Run], everything: bool) -> None:
    entries = [entry for run in chosen for entry in run.entries]
    what = "all" if everything else f"{len(chosen)} selected"
    with st.container(horizontal=True):
        for kind in ("csv", "parquet"):
            download(
                f"Export {what} as {kind.upper()}",
                functools.partial(_file, entries, kind),
                f"espalier-history.{kind}",
                f"history_export.{kind}",
                "secondary",
            )
        if not everything:
            st.button(
                f"Delete {what}",
                icon=":material/delete:",
                on_click=store.delete,
                args=([entry.id for entry in entries],),
                key="history_delete",
            )


def _file(entries: list[Entry], kind: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"history.{kind}"
        export(entries, path)
        return path.read_bytes()


def _to_compare(first: Run, second: Run) -> None:
    st.button(
        "Compare the two",
        icon=":material/compare_arrows:",
        type="primary",
        on_click=state.set_other,
        args=({"vs": "runs", "a.run": first.id, "b.run": second.id},),
        key="history_compare",
    )
    if st.session_state.get("history_compare"):
        st.switch_page("compare/page.py")
