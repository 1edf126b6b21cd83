"""What each section of the report says, in the order in which a team asks."""

from __future__ import annotations

from tuning.plan.commands import PROGRAM, command_line, rows_argument
from tuning.report import tables
from tuning.report.chart import sweep_svg
from tuning.report.markup import bullets, code, paragraph, section, strip, table
from tuning.report.picture import before_after_svg
from tuning.report.steps import MODES, candidates, seconds, step_of
from tuning.report.tables import Cell
from tuning.workspace.workspace import Workspace

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
    if batch is not None and batch.picture is not None:
        tree = batch.picture.panels[-1]
        held = tree.first + tree.again
        total = max(batch.picture.original_tokens, 1)
        items += [
            ("trees, all ranks", Cell(batch.trees, "exact")),
            ("tree_token_ratio", Cell(held / total, "exact", ".4f")),
            ("paid ratio", Cell(tree.tokens / total, "exact", ".4f")),
        ]
    step, flat = step_of(workspace, "tree"), step_of(workspace, "flat")
    items.append(("step", Cell(seconds(step.seconds), step.kind) if step else Cell("not measured")))
    if step and flat:
        both = "measured" if step.kind == flat.kind == "measured" else "estimated"
        items.append(("as fast as flat ×", Cell(flat.seconds / step.seconds, both, ".2f")))
    return strip(items)


def question(workspace: Workspace) -> str:
    plan = workspace.plan
    machine = workspace.sweep.machine if workspace.sweep else ""
    where = f" on {machine}" if machine else ""
    batch = (
        f"{plan.prompts_per_step or 'all'} prompts × {plan.samples_per_prompt or 'all'} samples, "
        f"{plan.dp_size} data-parallel rank{'s' if plan.dp_size > 1 else ''}, "
        f"{plan.ppo_n_minibatches} PPO minibatch{'es' if plan.ppo_n_minibatches > 1 else ''}"
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
    sweep = workspace.sweep
    pick = sweep.pick if sweep else None
    if sweep is None:
        return paragraph(
            "No sweep was run, so nothing is picked: the figures are those of max_tokens_per_mb "
            f"{workspace.plan.max_tokens_per_mb:,}.",
            "verdict against",
        )
    if pick is None:
        return paragraph("Nothing is picked: no candidate has a time.", "verdict against")
    if pick.mode != "tree":
        return paragraph(pick.reason, "verdict against")
    cap = workspace.plan.max_tokens_per_mb
    other = (
        f"The sweep's pick is not what the plan has: counted figures and the config below are of "
        f"max_tokens_per_mb {cap:,}."
        if cap != pick.max_tokens_per_mb
        else ""
    )
    return paragraph(pick.reason, "verdict") + (paragraph(other) if other else "")


def the_pick(workspace: Workspace) -> str:
    sweep = workspace.sweep
    parts = []
    if sweep is not None:
        if not sweep.finished:
            parts.append(paragraph("The sweep was stopped before its end."))
        if sweep.pick is not None and sweep.pick.runner_up:
            parts.append(paragraph(sweep.pick.runner_up))
        parts.append(paragraph(_how_sure(workspace)))
    parts.append(sweep_figure(workspace))
    if parts[-1]:
        note = "Filled dots are measured, hollow ones estimated"
        note += "; the band is the cost model's own error." if sweep else "."
        parts.append(paragraph(note, "sub"))
    parts.append(table(tables.candidates_table(workspace)))
    if sweep is not None:
        parts.append(bullets(sweep.notes))
        if sweep.pick is not None and sweep.pick.advice:
            parts += ["<h3>What would help more than the cap</h3>", bullets(sweep.pick.advice)]
    return section("The pick, and why", *parts)


def sweep_figure(workspace: Workspace) -> str:
    """The main chart as SVG; nothing where no cap is known."""
    curve, sweep = candidates(workspace), workspace.sweep
    if sweep is None:
        return sweep_svg(curve, {}, None)
    return sweep_svg(curve, sweep.baselines, sweep.pick, sweep.longest_row, sweep.budget_bytes)


def _how_sure(workspace: Workspace) -> str:
    assert workspace.sweep is not None
    points = workspace.sweep.points
    measured = sum(p.step_kind == "measured" for p in points)
    error = workspace.sweep.holdout_error
    text = f"{measured} of {len(points)} candidates were timed as whole steps."
    if error is not None:
        text += (
            " The others are estimated by the cost model; on measured points left out of its fit "
            f"its median error is {error:.1%}."
        )
    elif measured < len(points):
        text += " The cost model's error is not known: too few steps were measured."
    return text


def data(workspace: Workspace) -> str:
    notes = workspace.provenance.notes if workspace.provenance else ()
    parts = [paragraph(_TAGS[tag]) for tag in workspace.tags if tag in _TAGS]
    parts += [table(tables.data_table(workspace)), bullets(notes)]
    if workspace.batch is not None and workspace.batch.refused:
        parts.append(paragraph(f"AReaL refuses this batch: {workspace.batch.refused}"))
    parts.append(table(tables.packing_table(workspace)))
    return section("The data, and what trees make of it", *parts)


def before_after(workspace: Workspace) -> str:
    batch = workspace.batch
    if batch is None or batch.picture is None:
        return ""
    return section(
        "Before and after",
        paragraph(
            "The same update of the model three ways, to scale: a line is what one row, one "
            "micro-batch or one tree runs through the model, so equal areas are equal work."
        ),
        before_after_figure(workspace),
        table(tables.modes_table(workspace)),
        paragraph(f"AReaL refuses flat packing: {batch.flat_error}") if batch.flat_error else "",
    )


def before_after_figure(workspace: Workspace) -> str:
    """Padded, flat and as trees, as SVG; nothing where the rows were not at hand."""
    batch = workspace.batch
    if batch is None or batch.picture is None:
        return ""
    cap = batch.max_tokens_per_mb
    steps = {m: one.text(cap) for m in MODES if (one := step_of(workspace, m)) is not None}
    return before_after_svg(batch.picture, steps)


def memory(workspace: Workspace) -> str:
    sweep = workspace.sweep
    if sweep is None:
        return ""
    known = [p for p in sweep.points if p.memory_bytes]
    budget = f"{sweep.budget_bytes / 2**30:.2f} GiB" if sweep.budget_bytes else "not known"
    parts = [f"A step may use: {budget}."]
    if known:
        low, high = (f(known, key=lambda p: p.memory_bytes or 0) for f in (min, max))
        parts += [
            f"max_tokens_per_mb {p.max_tokens_per_mb:,} needs {(p.memory_bytes or 0) / 2**30:.2f} "
            f"GiB ({p.memory_kind})."
            for p in ([low, high] if low is not high else [low])
        ]
    refused = [p.max_tokens_per_mb for p in sweep.points if p.fits is False and not p.refused]
    if refused:
        parts.append(f"Does not fit: {', '.join(f'{cap:,}' for cap in refused)}.")
    note = paragraph(f"Memory is {sweep.memory_note}.") if sweep.memory_note else ""
    return section("Memory", bullets(parts), note)


def breaks(workspace: Workspace, text: str = "") -> str:
    """Where rows almost share; ``text`` is markup that shows the places."""
    found = tables.breaks_table(workspace)
    if not found.rows:
        return ""
    said = paragraph(
        "Rows part at these places although the same tokens follow. The ratios are those of "
        "AReaL's packer at this cap, rows in file order: as it is, and if they did not part."
    )
    return section("Where sharing breaks", said, table(found), text)


def evidence(workspace: Workspace) -> str:
    made = tables.evidence_table(workspace)
    counted = ", ".join(f"{name} {version}" for name, version in workspace.versions.items())
    return section(
        "Evidence",
        "" if made.rows else paragraph("No step was measured for these rows."),
        table(made),
        paragraph(f"Counted figures: {workspace.made_at}, {counted}.") if counted else "",
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
