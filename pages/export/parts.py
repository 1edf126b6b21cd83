"""The parts of the Export page: settings, the verdict, findings, and the text that leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from packing.rows import Rows
from pages.shared import measured, refusal, state
from pages.shared.text import plain
from pages.shared.widgets import download
from tuning.areal.schema import EXPORT_VERSIONS, VERSION_NAMES, Version
from tuning.doctor import check as areal_check
from tuning.doctor import doctor
from tuning.doctor.doctor import Finding, Report
from tuning.export import export
from tuning.export.evidence import evidence_of, trees_lose
from tuning.plan.batch import Batch
from tuning.plan.numbers import many
from tuning.plan.plan import TuningPlan
from tuning.sweep.result import Pick

_FORM_NAMES: dict[export.Form, str] = {
    "yaml": "YAML",
    "fragment": "Fragment for actor:",
    "overrides": "Overrides",
    "python": "Python",
    "trl": "TRL ≈",
    "verl": "verl ≈",
}
_COLOURS = {
    "fails at start": "red",
    "fails at first batch": "red",
    "silently wrong": "violet",
    "slow": "orange",
    "no effect": "gray",
}


@dataclass(frozen=True)
class Choice:
    """What is exported: AReaL's version, whether a reference pass runs, trees on or off."""

    target: Version
    with_ref: bool
    trees: bool


def draw_settings(pick: Pick | None, batch: Batch, plan: TuningPlan) -> Choice:
    """Version, engine, reference pass, and trees: on unless a measurement or the count says no."""
    columns = st.columns([2, 2, 3], vertical_alignment="bottom")
    counted = "" if pick is not None else trees_lose(batch, plan)
    lose = bool(counted) or (pick is not None and pick.mode != "tree")
    target = columns[0].selectbox(
        "AReaL version",
        EXPORT_VERSIONS,
        format_func=VERSION_NAMES.__getitem__,
        help="Only settings that exist in this version are written.",
        **kept("export_target", EXPORT_VERSIONS[0]),
    )
    columns[1].selectbox(
        "training engine",
        ["fsdp", "megatron", "archon"],
        help="Archon gets torch.compile, Megatron gets mbridge: trees need them.",
        **state.bind("engine"),
    )
    with columns[2]:
        trees = st.checkbox(
            "Train on trees (enable_tree_training)", **kept("export_trees", not lose)
        )
        with_ref = st.checkbox(
            "A reference model runs (kl_ctl > 0)",
            help="ref: then gets the same tree settings.",
            **kept("export_ref", False),
        )
    if pick is not None and lose:
        follows = "The config turns trees on all the same." if trees else "The config follows that."
        st.warning(f"{plain(pick.reason)} {follows}", icon=":material/block:")
    if counted:
        st.warning(plain(counted), icon=":material/block:")
    return Choice(target, with_ref, trees)


def kept(name: str, default: Any) -> dict[str, Any]:
    """``key`` and ``on_change`` of a widget whose value outlives a visit to another page."""
    key = f"{name}.widget"
    st.session_state[key] = st.session_state.get(name, default)

    def changed() -> None:
        st.session_state[name] = st.session_state[key]

    return {"key": key, "on_change": changed}


def draw_refusal(batch: Batch, plan: TuningPlan) -> bool:
    """Whether the plan itself cannot run on these rows; then it says why, and a way on."""
    if refused := batch.refusal(plan):
        refusal.draw(refused, "export")
        return True
    if problems := plan.problems():
        st.error("**This will not run.** " + plain(" ".join(problems)), icon=":material/block:")
    return bool(problems)


def draw_verdict(batch: Batch, plan: TuningPlan, choice: Choice) -> None:
    """Will this run? Of the export itself, on the rows of the batch."""
    text = export.render(plan, export.Evidence(), choice.target, "yaml", trees=choice.trees)
    report = report_of(text, batch.rows, choice.target, plan.memory_budget_gib)
    show_verdict(report, accepted_by(text, "PPOActorConfig", choice.target))
    draw_findings(report.findings)  # what costs time or changes results needs no click
    with st.expander("What was looked at, and what was not", icon=":material/help:"):
        _list_notes(report)


def show_verdict(report: Report, answer: areal_check.Answer | str) -> None:
    """One box: red where the run fails, green only where all was looked at and nothing found."""
    accepted = plain(answer if isinstance(answer, str) else answer.sentence)
    refused = not isinstance(answer, str) and not answer.accepted
    if report.errors or refused:
        st.error(f"**{plain(report.verdict)}** {accepted}", icon=":material/block:")
        return
    slow = sum(one.severity == "slow" for one in report.findings)
    more = f" It costs time or memory in {many(slow, 'place')}." if slow else ""
    if report.green:
        st.success(f"**{plain(report.verdict)}** {accepted}", icon=":material/check_circle:")
    else:
        st.info(f"**{plain(report.verdict)}**{more} {accepted}", icon=":material/info:")


def draw_findings(findings: Sequence[Finding]) -> None:
    """Each finding as a line to read, its words and source folded in."""
    for one in findings:
        where = f" · line {one.line:d}" if one.line else ""
        with st.container(border=True):
            badge = f":{_COLOURS[one.severity]}-badge[{plain(one.severity)}]"
            st.markdown(f"{badge} {plain(one.problem)}{where}")
            st.markdown(f"**Mend:** {plain(one.mend)}")
            said = f"AReaL says “{one.says}”. " if one.says else ""
            st.caption(plain(f"{said}When: {one.when}. Rule {one.rule}; source: {one.source}."))


def draw_not_checked(report: Report) -> None:
    if report.not_checked:
        with st.expander(f"Not checked ({len(report.not_checked)})", icon=":material/help:"):
            _list_notes(report)


def _list_notes(report: Report) -> None:
    for note in report.checked:
        st.markdown(f"- Checked: {plain(note)}")
    for note in report.not_checked:
        st.markdown(f"- Not checked: {plain(note)}")


@st.cache_resource(show_spinner=False, max_entries=32)
def _report(text: str, data: str, version: Version, budget: float, _rows: Rows) -> Report:
    return doctor.check(text, _rows, version=version, memory_budget_gib=budget)


def report_of(text: str, rows: Rows, version: Version, budget: float) -> Report:
    """The doctor's report; kept by text and rows."""
    return _report(text, rows.fingerprint, version, budget, rows)


@st.cache_data(show_spinner="Asking AReaL…", max_entries=64)
def accepted_by(text: str, class_name: str | None, version: Version) -> areal_check.Answer | str:
    """AReaL's own answer where it is installed in this version, else our tables'."""
    areal = areal_check.find_areal()
    if areal is not None and not areal.speaks_for(version):
        areal = None
    try:
        return areal_check.validate(text, class_name=class_name, version=version, areal=areal)
    except areal_check.ProbeError as error:
        return str(error)


def words_of(choice: Choice) -> list[str]:
    """What the page adds to a plan, as options of ``export``; its own defaults are left out."""
    words = []
    if choice.target != EXPORT_VERSIONS[0]:
        words += ["--target", choice.target]
    if (form := st.session_state.get("export_form", "yaml")) != "yaml":
        words += ["--form", form]
    if choice.with_ref:
        words.append("--ref")
    return [*words, "--trees" if choice.trees else "--no-trees"]


def draw_export(batch: Batch, plan: TuningPlan, choice: Choice) -> None:
    """The text, and its download."""
    chosen = st.segmented_control(
        "form",
        list(export.FORMS),
        format_func=_FORM_NAMES.__getitem__,
        required=True,
        label_visibility="collapsed",
        **kept("export_form", "yaml"),
    )
    form: export.Form = chosen or "yaml"
    if form in ("trl", "verl"):
        st.info(
            "Approximate: the same token budget in that framework's flat packing. It builds no "
            "prefix trees, so figures of trees do not carry over.",
            icon=":material/info:",
        )
    points = measured.points(batch.rows.fingerprint)
    evidence = evidence_of(batch, plan, points, date=str(date.today()), link=link_to(plan))
    if evidence.measured is None:
        st.caption(
            "No step of this plan has been measured. The packing figures are exact; the Tune page "
            "measures time and memory."
        )
    text = export.render(
        plan, evidence, choice.target, form, with_ref=choice.with_ref, trees=choice.trees
    )
    st.code(text, language=export.LANGUAGES[form], wrap_lines=True)
    file_name = export.FILE_NAMES[form]
    download(f"Download {file_name}", lambda: text, file_name, "export_download")


def link_to(plan: TuningPlan, page: str = "export") -> str:
    """Where this plan opens again on this server; empty where the address is not known."""
    url = st.context.url
    if not url:
        return ""
    parts = urlsplit(url)
    path = parts.path.rpartition("/")[0] + f"/{page}"
    return urlunsplit((parts.scheme, parts.netloc, path, urlencode(plan.to_query()), ""))
