"""The loaded rows of the plan, and its batch; loads run beside the page.

Notable:
- a source becomes part of the plan only when it has loaded: a broken one leaves the rows that
  were there before
- loads are shared by all sessions, by source; the rows themselves are kept on disk by content
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import streamlit as st

from packing.sources.errors import LoadCancelled, SourceError
from packing.sources.load import Progress, load
from packing.sources.loaded import Loaded
from packing.sources.spec import SourceSpec
from packing.spec import aligned
from pages.shared import state, waiting
from pages.shared.text import plain
from tuning.jobs.folders import uploads_folder
from tuning.plan.batch import Batch, smallest_cap
from tuning.plan.plan import TuningPlan
from tuning.workspace.rows import tags_of

_PATIENCE_S = 0.4
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LARGEST_CAP = 262_144
_LATE = "data.late"  # the strip on top was drawn before the rows had loaded

__all__ = ["Batch", "LoadTask", "batch", "batch_or_none", "follow", "loaded", "task_of"]


@dataclass
class LoadTask:
    """One load under way or ended."""

    source: SourceSpec
    progress: Progress = field(default_factory=lambda: Progress("opening", None))
    result: Loaded | None = None
    error: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        def tell(progress: Progress) -> None:
            self.progress = progress

        try:
            self.result = load(self.source, tell, self.stop.is_set, allowed_roots())
            state.allow(self.source)
        except LoadCancelled:
            self.error = "Loading was stopped."
        except (SourceError, ValueError) as error:
            self.error = str(error)
        except MemoryError:
            self.error = "The rows do not fit into memory; read fewer with a limit."
        finally:
            self.ended.set()


def allowed_roots() -> list[Path]:
    """Folders whose files may be opened by path; ``ESPALIER_DATA`` adds more (colon-separated).

    The home folder only for whoever sits at this machine: not where a token or an address other
    than loopback says that others come.
    """
    more = os.environ.get("ESPALIER_DATA", "").split(os.pathsep)
    shared = os.environ.get("ESPALIER_TOKEN") or st.get_option("server.address") not in _LOOPBACK
    home = [] if shared else [Path.home()]
    return [Path.cwd(), *home, uploads_folder(), *(Path(p) for p in more if p)]


@st.cache_resource(show_spinner=False, max_entries=8)
def _task(query: str) -> LoadTask:
    task = LoadTask(SourceSpec.from_query(query))
    threading.Thread(target=task.run, name="load", daemon=True).start()
    return task


def task_of(source: SourceSpec) -> LoadTask:
    """The load of a source, started if need be; one that failed is started again when asked."""
    return _task(source.to_query())


def forget(source: SourceSpec) -> None:
    """Load again the next time: the file may have been mended."""
    _task.clear(source.to_query())


def follow(task: LoadTask, key: str = "cancel_load") -> None:
    """Wait until the load has ended, with a bar and a Cancel button if that takes long."""
    if task.ended.wait(_PATIENCE_S):
        return
    place = st.empty()
    with place.container():
        bar = st.empty()
        st.button("Cancel loading", on_click=task.stop.set, icon=":material/close:", key=key)

    def tell() -> None:
        p = task.progress
        counted = f" · {p.rows:,} rows, {p.tokens:,} tokens" if p.rows else ""
        bar.progress(
            p.fraction or 0.0, text=f"{plain(source_name(task.source))}: {plain(p.stage)}{counted}"
        )

    waiting.wait(task.ended.is_set, tell)
    place.empty()


@st.cache_resource(show_spinner=False, max_entries=8)
def _batch(fingerprint: str, prompts: int, samples: int, cut: int, _loaded: Loaded) -> Batch:
    plan = TuningPlan(prompts_per_step=prompts, samples_per_prompt=samples, max_new_tokens=cut)
    return Batch.of(_loaded.rows, plan)


def loaded() -> Loaded:
    """The plan's rows; the page stops at a bar, or at a sentence and a way on."""
    task = task_of(state.plan().source)
    follow(task)
    if task.result is None:
        st.error(plain(task.error or "Nothing was loaded."), icon=":material/error:")
        with st.container(horizontal=True):
            st.button("Try again", on_click=forget, args=(task.source,), icon=":material/refresh:")
            st.button(
                "Use the bundled math-grpo",
                on_click=state.update,
                kwargs={"source": SourceSpec("sample", "math-grpo")},
            )
            if state.can_undo():
                st.button("Back to what was loaded before", on_click=state.undo)
        st.stop()
    if st.session_state.pop(_LATE, False):
        state.redraw()
    return task.result


def batch_or_none() -> Batch | None:
    """The batch for what is drawn before the page itself; None while rows load."""
    task = task_of(state.plan().source)
    found = task.result if task.ended.wait(_PATIENCE_S) else None
    st.session_state[_LATE] = found is None
    return None if found is None else _batch_of(found)


def batch() -> Batch:
    """The plan's batch; the page stops where there are no rows."""
    made = _batch_of(loaded())
    if not len(made.rows):
        st.info("There are no rows in this batch. Choose other data on the Dataset page.")
        st.stop()
    return made


def _batch_of(found: Loaded) -> Batch:
    return batch_of(found, state.plan())


def batch_of(found: Loaded, plan: TuningPlan) -> Batch:
    """The batch that a plan draws from these rows."""
    return _batch(
        found.rows.fingerprint,
        plan.prompts_per_step,
        plan.samples_per_prompt,
        plan.max_new_tokens,
        found,
    )


def source_name(source: SourceSpec) -> str:
    """Short and readable: a sample's name, a dataset id, or the last part of a path."""
    return Path(source.location).name if source.kind in ("file", "upload") else source.location


def source_tags() -> list[str]:
    """What must be said beside every figure: made by us, or made up."""
    return list(tags_of(state.plan().source))


def largest_cap(made: Batch, plan: TuningPlan) -> int:
    """One tree for everything, or as far as a slider is of use; never below the plan's own cap."""
    low = smallest_cap(made.rows, plan)
    whole = min(max(made.trie.n_tokens, 1), max(_LARGEST_CAP, plan.max_tokens_per_mb))
    return aligned(max(whole, low + plan.alignment, plan.max_tokens_per_mb), plan.alignment)
