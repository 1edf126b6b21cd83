"""The report's config, and what the doctor says of it."""

from __future__ import annotations

from packing.prefixes import PrefixOrder
from tuning.doctor.doctor import ConfigError, check
from tuning.export.evidence import evidence_of
from tuning.export.export import Evidence, ExportError, render
from tuning.plan.batch import Batch
from tuning.plan.numbers import number
from tuning.report.markup import below, bullets, code, paragraph, section
from tuning.workspace.workspace import Workspace


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
