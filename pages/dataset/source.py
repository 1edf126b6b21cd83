"""Where rows come from: bundled, a path, an upload, the Hub; and how records become rows."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import PurePath

import streamlit as st

from packing.sources.chat.tokenizer import BUNDLED
from packing.sources.errors import SourceError
from packing.sources.files import areal_dumps
from packing.sources.files.paths import find_files
from packing.sources.loaded import Loaded
from packing.sources.samples import SAMPLES
from packing.sources.spec import ROLES, Simulate, SourceSpec, parse_rows
from pages.shared import data, state
from tuning.jobs.folders import uploads_folder

_WAYS = {
    "sample": "Bundled",
    "upload": "Upload",
    "file": "File or folder",
    "hub": "Hugging Face Hub",
}
_CANDIDATE = "candidate_source"


def draw_source() -> None:
    """The ways in. A source becomes the plan's when it has loaded."""
    way = st.segmented_control(
        "rows from",
        list(_WAYS),
        format_func=_WAYS.__getitem__,
        default="sample",
        key="way",
        persist_state="session",
        label_visibility="collapsed",
    )
    {"sample": _samples, "upload": _upload, "file": _path, "hub": _hub}[way or "sample"]()
    _take_candidate()


def _samples() -> None:
    for column, (name, sample) in zip(st.columns(len(SAMPLES)), SAMPLES.items(), strict=True):
        with column.container(border=True, height="stretch"):
            st.markdown(f"**{sample.title}** :gray-badge[synthetic]")
            st.caption(sample.description)
            chosen = state.plan().source
            current = (chosen.kind, chosen.location) == ("sample", name)
            st.button(
                "In use" if current else f"Use {name}",
                key=f"sample-{name}",
                disabled=current,
                on_click=_propose,
                args=(sample_source(name),),
            )


def sample_source(name: str) -> SourceSpec:
    """Agent rollouts are trained one row a turn, as AReaL does."""
    source = SourceSpec("sample", name)
    return replace(source, expand="turn") if name == "agent-turns" else source


def _upload() -> None:
    file = st.file_uploader(
        "JSON, JSONL (also .gz, .zst), Parquet, Arrow, CSV or .npz",
        type=["json", "jsonl", "ndjson", "gz", "zst", "parquet", "arrow", "csv", "npz"],
        key="upload",
        help="It stays on this machine. Large files open faster by path.",
    )
    if file is None:
        return
    content = file.getvalue()
    mark = hashlib.blake2b(content, digest_size=8).hexdigest()
    if st.session_state.get("uploaded") == mark:
        return
    st.session_state["uploaded"] = mark
    folder = uploads_folder() / mark
    folder.mkdir(exist_ok=True)
    # Only the last part of the name: a browser may send a path.
    path = folder / (PurePath(file.name.replace("\\", "/")).name or "upload")
    path.write_bytes(content)
    _propose(SourceSpec("file", str(path)))


def _path() -> None:
    with st.form("path", border=False):
        left, right = st.columns([5, 1], vertical_alignment="bottom")
        text = left.text_input(
            "path, glob or folder",
            placeholder="rollouts/*.jsonl, or the folder of an AReaL rollout dump",
            help="Inside the working or home folder; ESPALIER_DATA adds more folders.",
        )
        if right.form_submit_button("Open", type="primary") and text.strip():
            _propose(SourceSpec("file", text.strip()))


def _hub() -> None:
    with st.form("hub", border=False):
        columns = st.columns([4, 2, 2, 2, 2, 1], vertical_alignment="bottom")
        name = columns[0].text_input("dataset id", placeholder="openai/gsm8k")
        config = columns[1].text_input("config")
        split = columns[2].text_input("split")
        revision = columns[3].text_input("revision")
        limit = columns[4].number_input("records at most", 0, help="0: all")
        if columns[5].form_submit_button("Open", type="primary") and name.strip():
            try:
                source = replace(
                    parse_rows(f"hub:{name.strip()}"),
                    config=config.strip() or None,
                    split=split.strip() or None,
                    revision=revision.strip() or None,
                    limit=int(limit) or None,
                    streaming=bool(limit),
                )
            except SourceError as error:
                st.error(str(error))
            else:
                _propose(source)


def _propose(source: SourceSpec) -> None:
    data.forget(source)
    st.session_state[_CANDIDATE] = source


def _take_candidate() -> None:
    """Follow the proposed load; what is in the plan stays until it has succeeded."""
    source = st.session_state.get(_CANDIDATE)
    if source is None:
        return
    task = data.task_of(source)
    if not data.follow(task):
        return
    if task.result is None:
        st.error(f"{task.error} What was loaded before is still here.", icon=":material/error:")
        if st.button("Dismiss", key="dismiss_error"):
            st.session_state[_CANDIDATE] = None
            st.rerun()
        return
    st.session_state[_CANDIDATE] = None
    state.update(source=source)
    st.rerun()


def draw_options(loaded: Loaded) -> None:
    """How records become rows; each choice loads anew and can be undone."""
    source = loaded.spec
    with st.expander("How records become rows", icon=":material/tune:"):
        columns = st.columns(4)
        expand = columns[0].selectbox(
            "one row per",
            ["conversation", "turn"],
            index=["conversation", "turn"].index(source.expand),
            help="turn: a row for each assistant turn, as AReaL's individual export.",
        )
        thinking = {"as the template": None, "kept": True, "stripped": False}
        think = columns[1].selectbox(
            "reasoning of past turns",
            list(thinking),
            index=list(thinking.values()).index(source.keep_thinking),
        )
        tokenizer = columns[2].text_input(
            "tokenizer",
            source.tokenizer or "",
            placeholder=loaded.provenance.tokenizer or BUNDLED,
            help="Hub id, local folder, or bundled. Rows of token ids need none.",
        )
        style = source.style
        if expand == "turn":
            style = columns[3].selectbox(
                "style of turns",
                ["individual", "concat"],
                index=["individual", "concat"].index(source.style),
                help="concat: only the leaves of a conversation.",
            )
        roles = _roles(loaded)
        versions = _versions(source)
        simulate = _simulate(source)
        wanted = replace(
            source,
            expand=expand,
            style=style,
            keep_thinking=thinking[think],
            tokenizer=tokenizer.strip() or None,
            versions=versions,
            simulate=simulate,
        ).with_roles(roles)
        if st.button("Load with these choices", disabled=wanted == source, type="primary"):
            _propose(wanted)
            st.rerun()


def _roles(loaded: Loaded) -> dict[str, str]:
    """Roles that were given another column than the one in use."""
    if not loaded.columns:
        return {}
    st.caption("Columns and the roles they play")
    paths = ["", *(c.path for c in loaded.columns)]
    changed = {}
    shown = [r for r in ROLES if loaded.roles.all(r)] + [
        "prompt",
        "completion",
        "messages",
        "group",
    ]
    for column, role in zip(st.columns(6) * 3, dict.fromkeys(shown), strict=False):
        now = (loaded.roles.all(role) or ("",))[0]
        options = paths if now in paths else [now, *paths]
        chosen = column.selectbox(role, options, index=options.index(now), key=f"role-{role}")
        if chosen and chosen != now:
            changed[role] = chosen
    return changed


def _versions(source: SourceSpec) -> tuple[str, ...]:
    """Of an AReaL rollout dump, the version folders to read."""
    if source.kind != "file":
        return ()
    found = areal_dumps.versions(find_files(source.location, data.allowed_roots()))
    if len(found) < 2:
        return source.versions
    chosen = st.multiselect(
        "policy versions of the dump", found, list(source.versions), placeholder="all of them"
    )
    return tuple(chosen)


def _simulate(source: SourceSpec) -> Simulate | None:
    """Samples made up for prompts that have none; marked wherever they count."""
    if not st.checkbox(
        "Simulate samples for each prompt",
        source.simulate is not None,
        help="For prompts without rollouts: lengths are drawn, tokens are made up.",
    ):
        return None
    made = source.simulate or Simulate()
    columns = st.columns(4)
    return replace(
        made,
        samples=int(columns[0].number_input("samples", 1, 4096, made.samples)),
        median=float(columns[1].number_input("median length", 1.0, 1e6, made.median)),
        sigma=float(columns[2].number_input("sigma of log length", 0.0, 5.0, made.sigma)),
        max_new_tokens=int(
            columns[3].number_input("max_new_tokens", 0, value=made.max_new_tokens or 0)
        )
        or None,
    )
