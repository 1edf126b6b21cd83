"""Where rows come from: bundled, a path, an upload, the Hub; and how records become rows."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import PurePath

import streamlit as st

from packing.sources.chat.tokenizer import BUNDLED
from packing.sources.errors import SourceError
from packing.sources.files import areal_dumps
from packing.sources.files.paths import COMPRESSIONS, FORMATS, READABLE, find_files
from packing.sources.loaded import Loaded
from packing.sources.samples import SAMPLES
from packing.sources.spec import DROPPED, SPEAKERS, Simulate, SourceSpec, parse_rows
from pages.dataset import roles
from pages.dataset.expansions import draw_expansions
from pages.shared import data, state
from pages.shared.text import plain
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
    chosen = roles.draw()
    if chosen is not None:
        _propose(chosen)
        st.rerun()


def _samples() -> None:
    for column, (name, sample) in zip(st.columns(len(SAMPLES)), SAMPLES.items(), strict=True):
        with column.container(border=True, height="stretch"):
            st.markdown(f"**{plain(sample.title)}** :gray-badge[synthetic]")
            st.caption(plain(sample.description))
            chosen = state.plan().source
            current = (chosen.kind, chosen.location) == ("sample", name)
            st.button(
                "In use" if current else f"Use {name}",
                key=f"sample-{name}",
                disabled=current,
                on_click=_propose,
                args=(state.sample_source(name),),
            )


def _upload() -> None:
    file = st.file_uploader(
        READABLE,
        type=[suffix.lstrip(".") for suffix in (*FORMATS, *COMPRESSIONS)],
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
            placeholder="rollouts/*.jsonl, a folder of AReaL's rollout dumps, or sample:math-grpo",
            help="Inside the working or home folder; ESPALIER_DATA adds more folders. What the "
            "command line takes as ROWS is taken here as well.",
        )
        if right.form_submit_button("Open", type="primary") and text.strip():
            try:
                _propose(parse_rows(text.strip()))
            except SourceError as error:
                st.error(plain(error), icon=":material/error:")


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
                st.error(plain(error))
            else:
                _propose(source)


def _propose(source: SourceSpec) -> None:
    data.forget(source)
    roles.close()
    st.session_state[_CANDIDATE] = source


def _take_candidate() -> None:
    """Follow the proposed load; what is in the plan stays until it has succeeded."""
    source = st.session_state.get(_CANDIDATE)
    if source is None:
        return
    task = data.task_of(source)
    data.follow(task)
    if task.result is None:
        st.error(
            f"{plain(task.error)} What was loaded before is still here.", icon=":material/error:"
        )
        _ways_on(source, task.error or "")
        return
    st.session_state[_CANDIDATE] = None
    state.update(source=source)
    st.rerun()


def _ways_on(source: SourceSpec, error: str) -> None:
    """What can be done about a source that did not load."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if source.kind != "sample":
            # The editor stands in for the error, which it would only repeat.
            if st.button("Give its columns roles", icon=":material/table_edit:"):
                roles.begin(source)
                st.session_state[_CANDIDATE] = None
                st.rerun()
            if ", row " in error and not source.leave_out_odd:
                st.button(
                    "Leave odd records out",
                    on_click=_propose,
                    args=(replace(source, leave_out_odd=True),),
                    icon=":material/filter_alt:",
                    help="Records that no row can be made of are counted and listed.",
                )
        if st.button("Dismiss", key="dismiss_error"):
            st.session_state[_CANDIDATE] = None
            st.rerun()
    if ".role'" in error and (pairs := _speakers(source, "error_speakers")) != source.speakers:
        _propose(replace(source, speakers=pairs))
        st.rerun()


def _speakers(source: SourceSpec, key: str) -> tuple[tuple[str, str], ...]:
    """Roles of messages that an ecosystem has to itself, and what they are here."""
    text = st.text_input(
        "roles of messages",
        ", ".join(f"{name}={known}" for name, known in source.speakers),
        key=key,
        placeholder="ipython=tool, environment=user",
        help=f"Unknown roles as NAME=ROLE; ROLE is {', '.join(SPEAKERS)}.",
    )
    pairs = [tuple(part.strip() for part in p.split("=", 1)) for p in text.split(",") if p.strip()]
    wrong = [p for p in pairs if len(p) != 2 or not p[0] or p[1] not in SPEAKERS]
    if wrong:
        st.error(f"{plain('='.join(wrong[0]))}: write NAME=ROLE with one of {', '.join(SPEAKERS)}.")
        return source.speakers
    return tuple((p[0], p[1]) for p in pairs)


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
        draw_expansions(loaded)
        left, middle, right = st.columns(3, vertical_alignment="bottom")
        with left:
            speakers = _speakers(source, "speakers")
        counts = loaded.provenance.left_out_groups
        leave_out = middle.multiselect(
            "groups left out",
            list(DROPPED),
            list(source.leave_out),
            format_func=lambda kind: f"{kind} ({counts.get(kind, 0):,})",
            placeholder="none",
            help="Groups that AReaL may drop: rewards all equal, or fewer samples than others.",
        )
        odd = right.checkbox(
            "Leave odd records out",
            source.leave_out_odd,
            help="Records that no row can be made of are counted and listed, not refused.",
        )
        if source.kind != "sample":
            used = " · ".join(f"{role}: {path}" for role, path in loaded.roles.pairs)
            st.caption(f"roles in use: {plain(used)}")
            roles.offer(source)
        versions = _versions(source)
        simulate = _simulate(source)
        wanted = replace(
            source,
            expand=expand,
            style=style,
            keep_thinking=thinking[think],
            tokenizer=tokenizer.strip() or None,
            versions=versions,
            speakers=speakers,
            leave_out=tuple(leave_out),
            leave_out_odd=odd,
            simulate=simulate,
        )
        if st.button("Load with these choices", disabled=wanted == source, type="primary"):
            _propose(wanted)
            st.rerun()


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
        median=columns[1].number_input("median length", 1.0, 1e7, made.median),
        sigma=columns[2].number_input("sigma of log length", 0.0, 5.0, made.sigma),
        max_new_tokens=int(
            columns[3].number_input("max_new_tokens", 0, value=made.max_new_tokens or 0)
        )
        or None,
    )
