"""The whole report as one HTML text."""

from __future__ import annotations

from pathlib import Path
from string import Template

from tuning.commands import rows_argument
from tuning.report import sections
from tuning.report.config import config_section, doctor_section
from tuning.report.escape import esc
from tuning.report.svg import standalone
from tuning.workspace import Workspace

_TEMPLATE = Path(__file__).with_name("template.html")


def render_report(workspace: Workspace, user_config: str = "", with_text: bool = False) -> str:
    """HTML that opens anywhere, offline.

    user_config: an AReaL config as text, for the doctor; by default it looks at the exported one
    with_text:   show text of the dataset where sharing breaks; raises WorkspaceError where the
                 rows cannot be read as text
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
        sections.breaks(workspace, with_text),
        sections.evidence(workspace),
        config,
        doctor_section(workspace, user_config, whole),
        sections.reproduce(workspace),
    ]
    subtitle = f"Espalier · {workspace.made_at} · plan {workspace.plan.key}"
    if workspace.fingerprint:
        subtitle += f" · rows {workspace.fingerprint}"
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=esc(f"max_tokens_per_mb for {rows_argument(workspace.plan.source)}"),
        subtitle=esc(subtitle),
        body="\n".join(part for part in body if part),
    )


def write_figures(workspace: Workspace, folder: Path) -> list[Path]:
    """Each figure that there is as an SVG file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {
        "sweep": sections.sweep_figure(workspace),
        "before_after": sections.before_after_figure(workspace),
    }
    paths = []
    for name, svg in drawn.items():
        if svg:
            path = folder / f"{name}.svg"
            path.write_text(standalone(svg), encoding="utf-8")
            paths.append(path)
    return paths
