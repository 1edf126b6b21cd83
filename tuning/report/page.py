"""The whole report as one HTML text, with its config and what the doctor says of it."""

from __future__ import annotations

from pathlib import Path
from string import Template

from packing.prefixes import PrefixOrder
from tuning.advice import advise
from tuning.doctor.doctor import ConfigError, check
from tuning.export.evidence import evidence_of
from tuning.export.export import Evidence, ExportError, render
from tuning.measure.gpu_run import GpuRun
from tuning.plan.batch import Batch
from tuning.plan.commands import rows_argument
from tuning.plan.numbers import moment, number
from tuning.report import sections
from tuning.report.escape import esc
from tuning.report.figures.svg_figure import STYLE, variables
from tuning.report.gpu import gpu_section
from tuning.report.markup import below, bullets, code, paragraph, section
from tuning.workspace.workspace import Workspace

_TEMPLATE = Path(__file__).with_name("template.html")


def render_report(
    workspace: Workspace,
    user_config: str = "",
    with_text: bool = False,
    gpu_run: GpuRun | None = None,
) -> str:
    """HTML that opens anywhere, offline.

    user_config: an AReaL config as text, for the doctor; by default it looks at the exported one
    with_text:   show how rows begin, and the text where sharing breaks; raises WorkspaceError
                 where the rows cannot be read as text
    gpu_run:     a run of the GPU benchmark, which gets a section of its own
    """
    if with_text:
        workspace = workspace.with_text()
    config, whole = config_section(workspace)
    body = [
        sections.verdict(workspace),
        answer(workspace),
        sections.key_figures(workspace),
        sections.question(workspace),
        sections.data(workspace),
        sections.the_pick(workspace),
        sections.before_after(workspace),
        sections.memory(workspace),
        sections.breaks(workspace, sections.breaks_text(workspace) if with_text else ""),
        sections.samples(workspace) if with_text else "",
        sections.evidence(workspace),
        gpu_section(gpu_run) if gpu_run else "",
        config,
        doctor_section(workspace, user_config, whole),
        sections.reproduce(workspace),
    ]
    subtitle = f"Espalier · {moment(workspace.made_at)} · plan {workspace.plan.key}"
    if workspace.fingerprint:
        subtitle += f" · rows {workspace.fingerprint}"
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=esc(f"max_tokens_per_mb for {rows_argument(workspace.plan.source)}"),
        tags="".join(f' <span class="tag">{esc(tag)}</span>' for tag in workspace.tags),
        subtitle=esc(subtitle),
        body="\n".join(part for part in body if part),
        light=variables(dark=False),
        dark=variables(dark=True),
        charts=STYLE,
    )


def answer(workspace: Workspace) -> str:
    """What ``advise`` says of the plan, in its own words; nothing where the rows are not here."""
    if workspace.rows is None or workspace.batch is None or workspace.batch.refused:
        return ""
    batch = Batch(workspace.rows, PrefixOrder.of(workspace.rows))
    advice = advise(batch, workspace.plan, workspace.sweep)
    said = (f"{advice.headline}. {advice.sentence}", advice.headroom, advice.saved)
    return "".join(paragraph(sentence) for sentence in said if sentence)


def config_section(workspace: Workspace) -> tuple[str, str]:
    """The config section, and the config in it, which the doctor looks at."""
    plan, pick = workspace.plan, workspace.sweep.pick if workspace.sweep else None
    if pick is not None and pick.mode != "tree":
        text = (
            "Leave enable_tree_training off. max_tokens_per_mb "
            f"{number(pick.max_tokens_per_mb)} is what {pick.mode} rows were timed at."
        )
        return section("Config", paragraph(text)), ""
    try:
        text = render(plan, _evidence(workspace))
    except ExportError as error:
        return section("Config", paragraph(f"Nothing is exported: {error}")), ""
    return section("Config", paragraph("For AReaL, to be merged into a config:"), code(text)), text


def _evidence(workspace: Workspace) -> Evidence:
    batch, date = workspace.batch, workspace.made_at[:10]
    if workspace.rows is None or batch is None or batch.refused:
        return Evidence(date=date)
    points = [one.point for one in workspace.points]
    counted = Batch(workspace.rows, PrefixOrder.of(workspace.rows))
    return evidence_of(counted, workspace.plan, points, date=date)


def doctor_section(workspace: Workspace, user_config: str, own_config: str) -> str:
    """Findings of the user's config where one is given, else of the exported one."""
    text = user_config or own_config
    if not text:
        return ""
    what = "the config given" if user_config else "the config above"
    try:
        report = check(text, workspace.rows, memory_budget_gib=workspace.plan.memory_budget_gib)
    except ConfigError as error:
        return section("Doctor", paragraph(f"Looked at {what}: {error}"))
    found = (
        below(
            one.severity,
            paragraph((f"line {one.line}: " if one.line else "") + one.problem)
            + paragraph(f"AReaL: “{one.says}”" if one.says else "", "sub")
            + paragraph(f"Shows {one.when}. Mend: {one.mend}"),
        )
        for one in report.if_turned_on
    )
    return section(
        "Doctor",
        paragraph(f"Looked at {what}. {report.verdict}"),
        paragraph("" if report.tree_on else report.verdict_if_on),
        *found,
        below("Not checked", bullets(report.not_checked)),
    )
