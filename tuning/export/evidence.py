"""What an export rests on, gathered from the batch and the run history."""

from __future__ import annotations

from collections.abc import Iterable

from tuning.doctor.rules.data import lost_to_flat
from tuning.export.export import Evidence
from tuning.jobs.points import Point, installed_versions, steps_at
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan

_COUNTING = ("torch", "transformers", "numpy")


def evidence_of(
    batch: Batch,
    plan: TuningPlan,
    points: Iterable[Point] = (),
    *,
    date: str = "",
    link: str = "",
) -> Evidence:
    """Evidence for ``plan`` on the batch of ``batch``.

    points: measured points, newest first; those of another plan, batch or cap are passed over

    Raises BatchRefused where AReaL stops at the batch.
    """
    simulation = batch.simulation(plan)
    steps = steps_at(points, plan, batch.rows.fingerprint)
    measured = {layout: one for layout, one in steps.items() if one.outcome == "measured"}
    tree, flat = measured.get("tree"), measured.get("flat")
    return Evidence(
        data=batch.rows.fingerprint,
        rows=len(batch.rows),
        tokens=batch.rows.n_tokens,
        packing={
            "trees": simulation.n_trees,
            "dummy trees": simulation.n_dummy_trees,
            "tree_token_ratio": simulation.tree_token_ratio,
            "padded_token_ratio": simulation.padded_token_ratio,
            "longest row": batch.rows.longest,
        },
        measured=tree,
        flat_s=None if flat is None else flat.step_s,
        versions=dict(tree.versions) if tree else installed_versions(*_COUNTING),
        date=date,
        link=link,
    )


def trees_lose(batch: Batch, plan: TuningPlan) -> str:
    """A sentence where trees compute no fewer tokens than flat rows, else empty.

    Empty too where AReaL refuses the batch: there is nothing to count.
    """
    counted = not plan.problems() and not batch.refusal(plan)
    return lost_to_flat(batch.simulation(plan).comparison) if counted else ""
