"""``count``: every batch of a training set at every candidate cap, or a sample with its error."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tuning.cli.common import Json, PlanOptions, row_options, say, sentences, show
from tuning.cli.sweep import seconds_of
from tuning.plan.batch import Batch
from tuning.plan.numbers import many, number, ratio

if TYPE_CHECKING:
    from tuning.scale import CapCount, Count, Figure

Time = Annotated[
    str, typer.Option("--budget", help="Sample batches for so long: 90s, 5m, 1h. Default: all.")
]
On = Annotated[str, typer.Option(help="Where: local, ray, ray:ADDRESS, slurm or slurm:PARTITION.")]
Seed = Annotated[int, typer.Option(help="Which batches are sampled, with --budget.")]


def register(app: typer.Typer) -> None:
    app.command()(count)


@row_options
def count(
    options: PlanOptions,
    budget: Time = "",
    on: On = "local",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Count trees and paid tokens of all batches of ROWS at each of --caps; nothing is run."""
    from tuning.scale import count as counted
    from tuning.sweep.batches import candidate_caps

    with sentences():
        plan = options.plan()
        rows = options.read()
        budget_s = seconds_of(budget) if budget else None
        caps = candidate_caps(Batch.of(rows, plan), plan, rows.longest)

        def tell(done: int, of: int) -> None:
            say(f"{done:,} of {of:,} batches", err=True)

        found = counted(rows, plan, caps, budget_s=budget_s, seed=seed, on=on, tell=tell)
        if as_json:
            show(found.to_json() | {"plan": replace(plan, caps=tuple(caps)).to_json()}, True)
        else:
            _table(found)


def _table(found: Count) -> None:
    from tuning.workspace.compare_text import aligned_columns

    whole = "all of them" if found.exact else f"{found.n_counted / found.n_batches:.1%} of them"
    say(
        f"{many(found.n_batches, 'batch', 'batches')} of {many(found.groups_a_batch, 'prompt')}, "
        f"{whole} counted in {found.seconds:,.1f} s. The longest row, {found.longest_row:,} "
        f"tokens, is in batch {found.longest_batch:,}."
    )
    seen = "worst" if found.exact else "worst seen"
    rows: list[tuple[str, ...]] = [
        ("cap", "trees", "paid", "± 95%", "paid ÷ original", seen, "in batch", "")
    ]
    rows += [_line(one) for one in found.caps]
    for line in aligned_columns(rows):
        say(line)
    if found.pick is not None:
        equal = sum(one.equal for one in found.caps)
        more = f"; {equal - 1} more cannot be told from it" if equal > 1 else ""
        say(f"{found.pick:,} pays least a batch{more}.")


def _line(one: CapCount) -> tuple[str, ...]:
    cap = number(one.max_tokens_per_mb)
    if one.refused:
        why = f"AReaL stops at batch {one.refused_batch:,}: {one.words} {one.mend}"
        return (cap, *[""] * 6, why)
    trees, paid = one.figures["n_trees"], one.figures["paid_tokens"]
    return (
        cap,
        number(trees.mean, ",.1f"),
        number(paid.mean, ",.0f"),
        _reach(paid),
        ratio(one.figures["padded_token_ratio"].mean),
        number(paid.worst, ",.0f"),
        number(paid.worst_batch),
        "pays least" if one.equal else "",
    )


def _reach(figure: Figure) -> str:
    return "exact" if figure.low == figure.high else number((figure.high - figure.low) / 2, ",.0f")
