"""The parts of the Kernels page: proof, settings, tiles, compile table, a run on a GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from packing.trie import Trie
from pages.kernels import jobs as kernel_jobs
from pages.shared import data, state
from pages.shared.text import plain
from pages.shared.widgets import chart, table, with_chosen
from tuning.jobs.jobs import JobView
from tuning.measure.gpu_run import GpuRunError, keep_gpu_run, kept_gpu_run
from tuning.plan.batch import Batch
from tuning.plan.gpus import devices
from tuning.plan.models import MODELS
from tuning.plan.numbers import moment
from tuning.plan.plan import TuningPlan
from tuning.report import gpu_tables
from tuning.report.figures.kernels import NAMES, backend_name, layer_errors
from tuning.report.figures.tiles import TileMap, pooled_by, tile_maps, tile_table

COMPILE_TABLE = Path(__file__).resolve().parents[2] / "docs" / "compile_table.json"
_REFUSED = "kernels.gpu_run_refused"
_ARCHS = {80: "sm_80 · A100", 86: "sm_86 · RTX, L4, L40S", 90: "sm_90 · H100", 100: "sm_100 · B200"}


def draw_proof(batch: Batch, plan: TuningPlan, job: JobView | None, busy: bool) -> None:
    """The verdict on "packed equals row by row", or a button to prove it."""
    with st.container(border=True):
        left, right = st.columns([5, 1], vertical_alignment="center")
        result = job.last("result") if job else None
        with left:
            if result is None:
                st.markdown("**Does packed training equal training row by row?**")
                st.caption(
                    "Log-probabilities and gradients of a small model on your own rows, packed "
                    "into trees and one by one: they must agree to rounding."
                )
            elif result["equal"]:
                st.markdown(f":material/check_circle: **{plain(result['verdict'])}**")
            else:
                st.error(plain(result["verdict"]), icon=":material/error:")
        right.button(
            "Prove it" if result is None else "Prove again",
            key="prove",
            type="primary" if result is None else "secondary",
            disabled=busy,
            on_click=kernel_jobs.start,
            args=("equivalence", plan, batch, {}),
            width="stretch",
        )
        if job is not None:
            kernel_jobs.draw_ending(job)
            kernel_jobs.draw_changed(job.plan, plan)
        if job is not None and result is not None:
            _draw_errors(job, result)


def _draw_errors(job: JobView, result: Mapping[str, Any]) -> None:
    folded = (
        f" Token ids were folded into its vocabulary of {result['vocabulary']:,}; the tree is that "
        "of the true ones."
        if result["folded"]
        else ""
    )
    with st.expander("Errors by layer"):
        chart(
            layer_errors(result),
            "layer_errors",
            "Relative error of log-probabilities and of each layer's gradients.",
        )
        st.caption(
            f"Measured on {plain(result['sampled'])} of {plain(data.source_name(job.plan.source))} "
            f"({result['packed_tokens']:,} packed tokens for {result['row_tokens']:,} of the rows) "
            f"with {plain(result['model'])}, {result['seconds']:.1f} s, "
            f"{plain(moment(job.created_at))}.{folded}"
        )


def draw_settings(
    batch: Batch,
    plan: TuningPlan,
    trie: Trie,
    tree: int,
    trees: int,
    busy: bool,
) -> None:
    """Which tree, shape, dtype, device and backends; and the button that runs them."""
    columns = st.columns(4)
    st.session_state["kernels.tree"] = tree
    columns[0].number_input(
        f"tree (of {trees:,})",
        0,
        trees - 1,
        key="kernels.tree",
        on_change=lambda: state.set_view(tree=st.session_state["kernels.tree"], node=None),
        help=f"{trie.n_tokens:,} tokens, {len(trie):,} nodes, {len(trie.rows):,} rows.",
    )
    columns[1].selectbox(
        "shape of model",
        with_chosen(MODELS, plan.model),
        accept_new_options=True,
        help="A preset, a config.json, a folder, or a Hub id. Only its heads and their size are "
        "used here.",
        **state.bind("model"),
    )
    columns[2].selectbox("dtype", ["float32", "bfloat16"], **state.bind("dtype"))
    here = [name for name in devices() if name == "cpu" or name.startswith("cuda")]
    columns[3].selectbox("device", with_chosen(here, plan.device), **state.bind("device"))
    row = st.columns([6, 1.1, 1.4], vertical_alignment="bottom")
    backends = row[0].multiselect(
        "backends",
        [name for name in NAMES if name != "rows"],
        default=[name for name in NAMES if name != "rows"],
        format_func=backend_name,
        key="kernels.backends",
        persist_state="session",
    )
    repeats = row[1].number_input(
        "runs",
        1,
        50,
        5,
        key="kernels.repeats",
        persist_state="session",
        help="Timed runs of each backend, taking turns.",
    )
    row[2].button(
        "Run",
        key="run_kernels",
        type="primary",
        icon=":material/play_arrow:",
        disabled=busy or not backends,
        on_click=kernel_jobs.start,
        args=("kernels", state.plan(), batch),
        kwargs={"arguments": {"tree": tree, "backends": backends, "repeats": int(repeats)}},
        width="stretch",
    )


@st.cache_resource(show_spinner=False, max_entries=32)
def _tile_maps(key: tuple[str, int, int, str], _trie: Trie) -> tuple[TileMap, TileMap]:
    return TileMap.of(_trie, "areal"), TileMap.of(_trie, "depth-first")


def draw_tiles(trie: Trie, tree: int, fingerprint: str, plan: TuningPlan) -> None:
    """The mask of the tree as tiles, in AReaL's order and in ours."""
    st.header("The mask in tiles", anchor=False)
    areal, ours = _tile_maps((fingerprint, tree, plan.max_tokens_per_mb, plan.packer), trie)
    chart(
        tile_maps(areal, ours),
        "tile_maps",
        "Empty, partial and full tiles of the attention mask, in two orders of the tokens.",
    )
    table(tile_table(areal, ours))
    pooled = pooled_by(ours)
    pooling = f"One cell pools {pooled:d} × {pooled:d} tiles. " if pooled > 1 else ""
    st.caption(
        f"Tiles of {ours.tile:d} × {ours.tile:d} tokens, AReaL's block size; exact, padding left "
        f"out. {pooling}{ours.mask_area:,} pairs attend in either order; a tile that holds any is "
        "visited."
    )


def draw_compile_table(path: Path = COMPILE_TABLE) -> None:
    """What the compiler made of our kernels for a GPU architecture, where it has been asked."""
    with st.expander("Our kernels as compiled for a GPU", icon=":material/developer_board:"):
        if not path.is_file():
            st.markdown("No table has been made yet. No GPU is needed for it:")
            command = (
                f"python -m benchmarks.compile_kernels --json > {path.parent.name}/{path.name}"
            )
            st.code(command, language="bash", wrap_lines=True)
            return
        compiled = pd.json_normalize(json.loads(path.read_text()), sep=" ")
        arch = st.segmented_control(
            "architecture",
            sorted(compiled["arch"].unique().tolist()),
            format_func=lambda number: _ARCHS.get(number, f"sm_{number:d}"),
            default=90 if 90 in compiled["arch"].to_numpy() else None,
            key="kernels.arch",
            persist_state="session",
        )
        shown = compiled[compiled["arch"] == arch] if arch else compiled
        names = {c: c.removeprefix("config ").replace("_", " ") for c in shown.columns}
        table(shown.rename(columns=names))
        st.caption(
            "Counted in the machine code: registers a thread, bytes of stack, accesses to local "
            "memory (spills), the matrix instruction, bytes of shared memory."
        )


def draw_gpu_run() -> None:
    """A run of ``benchmarks.gpu``: loaded here, kept for reports and estimates."""
    with st.expander("Timed on a GPU", icon=":material/memory:"):
        st.file_uploader(
            "JSON of `python -m benchmarks.gpu`",
            type=["json"],
            key="kernels.gpu_run",
            on_change=_keep_gpu_run,
        )
        refused = st.session_state.get(_REFUSED)
        try:
            run = kept_gpu_run()
        except (GpuRunError, OSError) as error:
            run, refused = None, refused or str(error)
        if refused:
            st.error("Not taken as a measurement:", icon=":material/error:")
            st.text(refused)
        if run is None:
            st.markdown("None has been loaded. On a machine with a GPU this takes eight minutes:")
            st.code("python -m benchmarks.gpu --out gpu.json", language="bash")
            return
        st.text(f"Measured: {run.provenance}.")
        for title, made in gpu_tables(run).items():
            if made.rows:
                st.markdown(f"**{plain(title)}**")
                lines = [[cell.text for cell in row] for row in made.rows]
                table(pd.DataFrame(lines, columns=list(made.columns)), key=made.name)
        st.caption(
            "A share of the peak counts visible pairs; *by whole tiles* all pairs that a kernel "
            "computed, which a tree of another shape keeps."
        )


def _keep_gpu_run() -> None:
    file = st.session_state["kernels.gpu_run"]
    st.session_state.pop(_REFUSED, None)
    if file is not None:
        try:
            keep_gpu_run(file.getvalue().decode(errors="replace"), file.name)
        except (GpuRunError, OSError) as error:
            st.session_state[_REFUSED] = str(error)
