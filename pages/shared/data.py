"""The loaded rows of the plan, and the workbench over its batch; loads run beside the page.

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

from packing.packers.areal import RowTooLong
from packing.sources.errors import LoadCancelled, SourceError
from packing.sources.load import Progress, load
from packing.sources.loaded import Loaded
from packing.sources.samples import SAMPLES
from packing.sources.spec import SourceSpec
from packing.trie import Forest
from pages.shared import state
from tuning.jobs.folders import uploads_folder
from tuning.plan.batch import Batch, aligned
from tuning.plan.plan import TuningPlan

_PATIENCE_S = 0.4
_LARGEST_CAP = 262_144
_LATE = "data.late"  # the strip on top was drawn before the rows had loaded

__all__ = ["Batch", "LoadTask", "bench", "bench_or_none", "follow", "loaded", "task_of"]


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
        except LoadCancelled:
            self.error = "Loading was stopped."
        except (SourceError, ValueError) as error:
            self.error = str(error)
        except MemoryError:
            self.error = "The rows do not fit into memory; read fewer with a limit."
        finally:
            self.ended.set()


def allowed_roots() -> list[Path]:
    """Folders whose files may be opened by path; ``ESPALIER_DATA`` adds more (colon-separated)."""
    more = os.environ.get("ESPALIER_DATA", "").split(os.pathsep)
    return [Path.cwd(), Path.home(), uploads_folder(), *(Path(p) for p in more if p)]


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


def follow(task: LoadTask, key: str = "cancel_load") -> bool:
    """Whether the load has ended; until then a bar, a Cancel button, and another look soon."""
    if task.ended.wait(_PATIENCE_S):
        return True
    _bar(task)
    st.button("Cancel loading", on_click=task.stop.set, icon=":material/close:", key=key)
    return False


@st.fragment(run_every=0.5)
def _bar(task: LoadTask) -> None:
    if task.ended.is_set():
        state.redraw()
    p = task.progress
    counted = f" · {p.rows:,} rows, {p.tokens:,} tokens" if p.rows else ""
    st.progress(p.fraction or 0.0, text=f"{source_name(task.source)}: {p.stage}{counted}")


@st.cache_resource(show_spinner=False, max_entries=8)
def _bench(fingerprint: str, prompts: int, samples: int, cut: int, _loaded: Loaded) -> Batch:
    plan = TuningPlan(prompts_per_step=prompts, samples_per_prompt=samples, max_new_tokens=cut)
    return Batch.of(_loaded.rows, plan)


def loaded() -> Loaded:
    """The plan's rows; the page stops at a bar, or at a sentence and a way on."""
    task = task_of(state.plan().source)
    if not follow(task):
        st.stop()
    if task.result is None:
        st.error(task.error or "Nothing was loaded.", icon=":material/error:")
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


def bench_or_none() -> Batch | None:
    """The workbench for what is drawn before the page itself; None while rows load."""
    task = task_of(state.plan().source)
    found = task.result if task.ended.wait(_PATIENCE_S) else None
    st.session_state[_LATE] = found is None
    return None if found is None else _bench_of(found)


def bench() -> Batch:
    """The workbench over the plan's batch; the page stops where there are no rows."""
    made = _bench_of(loaded())
    if not len(made.rows):
        st.info("There are no rows in this batch. Choose other data on the Dataset page.")
        st.stop()
    return made


def forest(made: Batch, plan: TuningPlan) -> Forest:
    """The trees of the plan's packing; the page stops where there are none, and says why."""
    try:
        trees = made.forest(plan.max_tokens_per_mb, plan.packer)
    except RowTooLong as error:
        st.error(str(error), icon=":material/block:")
        st.page_link(
            "packing/page.py", label="Choose a larger max_tokens_per_mb on the Packing page"
        )
        st.stop()
    if not len(trees):
        st.info("All rows are empty: there is no tree. Choose other data on the Dataset page.")
        st.stop()
    return trees


def _bench_of(found: Loaded) -> Batch:
    return bench_of(found, state.plan())


def bench_of(found: Loaded, plan: TuningPlan) -> Batch:
    """The workbench over the batch that a plan draws from these rows."""
    return _bench(
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
    source = state.plan().source
    tags = []
    if source.kind == "sample" and source.location in SAMPLES:
        tags.append("synthetic")
    if source.simulate is not None:
        tags.append("simulated")
    return tags


def smallest_cap(made: Batch, plan: TuningPlan) -> int:
    """The smallest aligned cap that holds the longest row."""
    return aligned(max(made.smallest_cap, 1), plan.alignment)


def largest_cap(made: Batch, plan: TuningPlan) -> int:
    """One tree for everything, or as far as a slider is of use."""
    whole = aligned(max(made.trie.n_tokens, 1), plan.alignment)
    return max(min(whole, aligned(_LARGEST_CAP, plan.alignment)), smallest_cap(made, plan))
