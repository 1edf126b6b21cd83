"""What each section of the report says, in the order in which a team asks.

Text of the dataset is shown only where it was asked for; it is not trusted.
"""

from __future__ import annotations

from collections.abc import Iterable

from packing.batch.divergence import Divergence
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from tuning.plan.batch import Batch
from tuning.plan.commands import PROGRAM, command_line, rows_argument
from tuning.plan.numbers import gib, many, moment, number, percent, seconds
from tuning.plan.plan import STEP_NAMES
from tuning.report import tables
from tuning.report.escape import esc
from tuning.report.figures.before_after import before_after_chart
from tuning.report.figures.svg_figure import svg_figure
from tuning.report.figures.sweep import sweep_chart
from tuning.report.markup import below, bullets, code, paragraph, section, strip, table
from tuning.report.tables import MODES, Cell, candidates, speedup, step_of, step_text
from tuning.sweep.result import SweepResult
from tuning.workspace.workspace import Workspace

_CAP = "max_tokens_per_mb"
_MARKS = (
    "Filled dots are measured, hollow ones estimated, each with its spread; lines join only caps "
    "between which the trees stay as many."
)
_TAGS = {
    "synthetic": "These rows are synthetic: a seeded program of Espalier wrote them, no model did.",
    "simulated": "Samples of these prompts are simulated: their lengths are drawn, their tokens "
    "made up.",
}


def key_figures(workspace: Workspace) -> str:
    """The state of the work at a glance."""
    cap, batch = workspace.plan.max_tokens_per_mb, workspace.batch
    items = [("max_tokens_per_mb", Cell(cap))]
    if batch is not None:
        items += [("rows", Cell(batch.rows, "exact")), ("tokens", Cell(batch.tokens, "exact"))]
    packed = batch.of_packer(workspace.plan.packer) if batch else None
    if packed is not None:
        items += [
            ("trees", Cell(packed.trees, "exact")),
            ("tree_token_ratio", Cell(packed.tree_token_ratio, "exact", ".4f")),
            ("paid ÷ original", Cell(packed.padded_token_ratio, "exact", ".4f")),
        ]
    step, flat = step_of(workspace, "tree"), step_of(workspace, "flat")
    known = Cell(seconds(step.step_s), step.step_kind or "") if step else Cell("not measured")
    items.append((f"step, {STEP_NAMES[workspace.plan.step_of]}", known))
    if step and flat:
        items.append(("as fast as flat ×", Cell(*speedup(step, flat), ".2f")))
    return strip(items)


def question(workspace: Workspace) -> str:
    plan = workspace.plan
    machine = workspace.sweep.machine if workspace.sweep else ""
    where = f" on {machine}" if machine else ""
    batch = (
        f"{plan.prompts_per_step or 'all'} prompts × {plan.samples_per_prompt or 'all'} samples, "
        f"{many(plan.dp_size, 'data-parallel rank')}, "
        + many(plan.ppo_n_minibatches, "PPO minibatch", "PPO minibatches")
    )
    return section(
        "The question",
        paragraph(
            f"Which max_tokens_per_mb should {rows_argument(plan.source)} be trained with, and is "
            f"tree training worth turning on? One step is {batch}, on {plan.engine}, model "
            f"{plan.model} in {plan.dtype}{where}."
        ),
        paragraph(
            "A larger max_tokens_per_mb lets more rows share a prefix in one tree, so fewer tokens "
            "are computed; but every tree is padded to it, attention grows with it, and so does "
            "memory."
        ),
        "<p>Figures are of three kinds: "
        '<span class="k exact">exact</span>, counted on these rows; '
        '<span class="k measured">measured ●</span>, timed on the machine named; '
        '<span class="k estimated">estimated ○</span>, by a model whose error is given.</p>',
    )


def verdict(workspace: Workspace) -> str:
    sweep, cap = workspace.sweep, number(workspace.plan.max_tokens_per_mb)
    pick, other = sweep.pick if sweep else None, ""
    if sweep is None:
        said = f"No sweep was run, so nothing is picked: the figures are those of {_CAP} {cap}."
    elif pick is None:
        said = "Nothing is picked: no candidate has a time."
    else:
        said = pick.reason
        if pick.mode == "tree" and pick.max_tokens_per_mb != workspace.plan.max_tokens_per_mb:
            other = "The sweep's pick is not what the plan has: counted figures and the config "
            other += f"below are of {_CAP} {cap}."
    css = "verdict" if pick is not None and pick.mode == "tree" else "verdict against"
    return paragraph(said, css) + paragraph(other)


def the_pick(workspace: Workspace) -> str:
    sweep, figure = workspace.sweep, sweep_figure(workspace)
    pick = sweep.pick if sweep else None
    stopped = sweep is not None and not sweep.finished
    return section(
        "The pick, and why",
        paragraph("The sweep was stopped before its end." if stopped else ""),
        paragraph(pick.runner_up if pick else ""),
        paragraph(_how_sure(sweep) if sweep else ""),
        figure,
        paragraph(_MARKS if figure else "", "sub"),
        table(tables.candidates_table(workspace)),
        bullets(sweep.notes if sweep else ()),
        below("What would help more than the cap", bullets(pick.advice if pick else ())),
    )


def sweep_figure(workspace: Workspace) -> str:
    """The main chart as SVG; nothing where no cap is known."""
    curve, plan = candidates(workspace), workspace.plan
    without = SweepResult(curve, {}, None, None, plan.model, "", 0, 0)
    chart = sweep_chart(workspace.sweep or without, plan.packer, plan.max_tokens_per_mb)
    return svg_figure(chart) if chart else ""


def _how_sure(sweep: SweepResult) -> str:
    measured = sum(p.step_kind == "measured" for p in sweep.points)
    candidates_of = many(len(sweep.points), "candidate")
    text = f"{number(measured)} of {candidates_of} were timed as whole steps."
    if sweep.holdout_error is not None:
        return (
            f"{text} The others are estimated by the cost model; on measured points left out of "
            f"its fit its median error is {percent(sweep.holdout_error)}."
        )
    unknown = " The cost model's error is not known: too few steps were measured."
    return text + (unknown if measured < len(sweep.points) else "")


def data(workspace: Workspace) -> str:
    refused = workspace.batch.refused if workspace.batch else ""
    return section(
        "The data, and what trees make of it",
        *(paragraph(_TAGS[tag]) for tag in workspace.tags if tag in _TAGS),
        table(tables.data_table(workspace)),
        bullets(workspace.provenance.notes if workspace.provenance else ()),
        paragraph(f"AReaL refuses this batch: {refused}" if refused else ""),
        table(tables.packing_table(workspace)),
    )


def before_after(workspace: Workspace) -> str:
    figure = before_after_figure(workspace)
    refused = workspace.batch.flat_error if workspace.batch else ""
    return figure and section(
        "Before and after",
        paragraph(
            "The same update of the model three ways, to scale: a line is what one row, one "
            "micro-batch or one tree runs through the model, so equal areas are equal work."
        ),
        figure,
        table(tables.modes_table(workspace)),
        paragraph(f"AReaL refuses flat packing: {refused}" if refused else ""),
    )


def before_after_figure(workspace: Workspace) -> str:
    """Padded, flat and as trees, as SVG; nothing where the rows were not at hand."""
    batch = workspace.batch
    if batch is None or batch.picture is None:
        return ""
    cap = batch.max_tokens_per_mb
    steps = {m: step_text(one, cap) for m in MODES if (one := step_of(workspace, m))}
    return svg_figure(before_after_chart(batch.picture, steps))


def memory(workspace: Workspace) -> str:
    sweep = workspace.sweep
    if sweep is None:
        return ""
    known = sorted((p for p in sweep.points if p.memory_bytes), key=lambda p: p.memory_bytes or 0)
    ends = known if len(known) < 2 else (known[0], known[-1])
    large = [p.max_tokens_per_mb for p in sweep.points if p.fits is False and not p.refused]
    parts = [
        f"A step may use: {gib(sweep.budget_bytes) if sweep.budget_bytes else 'not known'}.",
        *(
            f"{_CAP} {number(p.max_tokens_per_mb)} needs {gib(p.memory_bytes)} ({p.memory_kind})."
            for p in ends
        ),
        *([f"Does not fit: {', '.join(map(number, large))}."] if large else []),
    ]
    note = f"Memory is {sweep.memory_note}." if sweep.memory_note else ""
    return section("Memory", bullets(parts), paragraph(note))


def breaks(workspace: Workspace, text: str = "") -> str:
    """Where rows almost share; ``text`` is markup that shows the places."""
    found = tables.breaks_table(workspace)
    if not found.rows:
        return ""
    said = paragraph(
        "Rows part at these places although the same tokens follow. Tokens in "
        "trees and paid tokens are of one update of this plan: as it is, and if they did not part."
    )
    return section("Where sharing breaks", said, table(found), text)


def evidence(workspace: Workspace) -> str:
    made = tables.evidence_table(workspace)
    counted = ", ".join(f"{name} {version}" for name, version in workspace.versions.items())
    return section(
        "Evidence",
        "" if made.rows else paragraph("No step was measured for these rows."),
        table(made),
        paragraph(f"Counted figures: {moment(workspace.made_at)}, {counted}.") if counted else "",
    )


def reproduce(workspace: Workspace) -> str:
    plan = workspace.plan
    lines = [command_line(name, plan) for name in ("rows", "pack", "chain", "sweep")]
    runs = sorted({one.run for one in workspace.points})
    lines += [f"{PROGRAM} report {run} -o report.html" for run in runs[:3]]
    return section(
        "How to reproduce",
        paragraph(
            "In the folder of Espalier, on a machine that has the data; measured figures need the "
            "device named in the evidence."
        ),
        code("\n".join(lines)),
        bullets(workspace.notes),
    )


_TEXT = 400
_BREAKS_SHOWN = 5
_SAMPLES = 3


def breaks_text(workspace: Workspace) -> str:
    """What stands before, at and after the places where rows almost share."""
    if workspace.rows is None:
        return ""
    batch = Batch(workspace.rows, PrefixOrder.of(workspace.rows))
    found = batch.divergences(workspace.plan)[:_BREAKS_SHOWN]
    return "".join(_break(workspace.rows, one) for one in found)


def samples(workspace: Workspace) -> str:
    """How the first rows of the batch begin and end."""
    rows = workspace.rows
    if rows is None or not len(rows):
        return ""
    parts = []
    for nth in range(min(_SAMPLES, len(rows))):
        ids = rows[nth].tolist()
        text = rows.text(ids)
        if len(text) > 2 * _TEXT:
            text = f"{text[:_TEXT]} … {text[-_TEXT:]}"
        title = f"Row {nth}, {many(len(ids), 'token')}"
        parts.append(f'<h3>{title}</h3><p><span class="piece">{esc(text)}</span></p>')
    return section(
        "Samples of the text",
        paragraph("The first rows of the batch, as they are trained:"),
        *parts,
    )


def _break(rows: Rows, one: Divergence) -> str:
    pieces = "".join(
        f'<li><span class="piece">{esc(_shown(rows, piece)) or "(nothing)"}</span></li>'
        for piece in one.pieces
    )
    return (
        f"<h3>After {many(one.position, 'token')}</h3>"
        f'<p>… <span class="piece">{esc(_shown(rows, one.before))}</span> then one of</p>'
        f"<ul>{pieces}</ul>"
        f'<p>and in all of them <span class="piece">{esc(_shown(rows, one.after))}</span> …</p>'
    )


def _shown(rows: Rows, ids: Iterable[int]) -> str:
    text = rows.text(list(ids))
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
