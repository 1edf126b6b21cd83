"""The whole report as one HTML text."""

from __future__ import annotations

from pathlib import Path
from string import Template

from tuning.plan.commands import rows_argument
from tuning.plan.numbers import moment
from tuning.report import sections, texts
from tuning.report.config import config_section, doctor_section
from tuning.report.escape import esc
from tuning.report.figures.svg_figure import STYLE, variables
from tuning.workspace.workspace import Workspace

_TEMPLATE = Path(__file__).with_name("template.html")


def render_report(workspace: Workspace, user_config: str = "", with_text: bool = False) -> str:
    """HTML that opens anywhere, offline.

    user_config: an AReaL config as text, for the doctor; by default it looks at the exported one
    with_text:   show how rows begin, and the text where sharing breaks; raises WorkspaceError
                 where the rows cannot be read as text
    """
    if with_text:
        workspace = workspace.with_text()
    config, whole = config_section(workspace)
    body = [
        sections.verdict(workspace),
        sections.key_figures(workspace),
        sections.question(workspace),
        sections.data(workspace),
        sections.the_pick(workspace),
        sections.before_after(workspace),
        sections.memory(workspace),
        sections.breaks(workspace, texts.breaks_text(workspace) if with_text else ""),
        texts.samples(workspace) if with_text else "",
        sections.evidence(workspace),
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
