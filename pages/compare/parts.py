"""The comparison on screen: what matters, the table, and both sides on the same axes."""

from __future__ import annotations

import html
import math

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from packing.spec import aligned
from pages.compare.sides import FIELDS, Pair, Shown
from pages.shared import background, state
from pages.shared.text import Html, plain
from pages.shared.widgets import chart, table, to_tune
from tuning.plan.summary import Packed
from tuning.report.figures.compare import caps_compared, lengths_compared, steps_compared
from tuning.workspace.compare import Compared, ComparedFigure, percent, same_rows, written

_CSS = """
<style>
.compared { width: 100%; border-collapse: collapse; font-size: 0.92rem;
  font-variant-numeric: tabular-nums; }
.compared th, .compared td { padding: 0.28rem 0.5rem; text-align: right; vertical-align: top;
  border: 0; border-bottom: 1px solid rgba(128, 128, 128, 0.22); }
.compared th { font-weight: 600; }
.compared thead th { min-width: 4.2rem; vertical-align: bottom; }
.compared thead small { white-space: normal; font-weight: 400; }
.compared .A { color: var(--blue); }
.compared .B { color: var(--orange); }
.compared th:first-child, .compared td:last-child, .compared th:last-child { text-align: left; }
.compared tbody th { font-weight: 400; }
.compared small { font-size: 0.78rem; opacity: 0.8; white-space: nowrap; }
.compared .verdict { border-radius: 0.6rem; padding: 0.08rem 0.5rem; white-space: nowrap; }
.compared .better { background: color-mix(in srgb, var(--blue) 26%, transparent);
  font-weight: 600; }
.compared .worse { background: color-mix(in srgb, var(--orange) 26%, transparent);
  font-weight: 600; }
.compared-box { overflow-x: auto; }
</style>
"""
_VERDICTS = {"b": ("better", "▲ B better"), "a": ("worse", "▼ B worse")}


def draw(pair: Pair, compared: Compared) -> None:
    """All of it, from the sentence down."""
    _draw_sentence(pair, compared)
    _draw_table(pair, compared)
    _draw_figures(pair)
    _draw_caps(compared)


def _draw_sentence(pair: Pair, compared: Compared) -> None:
    box = st.container(border=True)
    if pair.a.side.refused or pair.b.side.refused:
        box.error(f"**{plain(compared.sentence)}**", icon=":material/block:")
        if state.other().get("vs") != "runs":
            _draw_way_on(box, pair)
    else:
        box.header(plain(compared.sentence), anchor=False)
    told = [f"{plain(name)}: {plain(a)} → {plain(b)}" for name, a, b in compared.changed]
    if not told and not same_rows(pair.a.side, pair.b.side):
        told = ["the rows"]
    box.caption("What differs: " + (" · ".join(told) or "nothing in the settings") + ".")
    for note in compared.notes:
        box.caption(f":material/info: {plain(note)}")
    for label, shown in (("A", pair.a), ("B", pair.b)):
        if shown.batch is None:
            box.caption(
                f":material/info: The rows of {label} are not at hand any more: its times "
                "are compared, and nothing is counted."
            )


def _draw_way_on(box: DeltaGenerator, pair: Pair) -> None:
    """A cap that holds the longest row of either side, where a row is what stops one."""
    batches = [shown.batch for shown in (pair.a, pair.b) if shown.batch is not None]
    a, b = pair.a.plan, pair.b.plan
    step = math.lcm(a.alignment, b.alignment)
    cap = aligned(max((batch.rows.longest for batch in batches), default=0), step)
    if cap <= min(a.max_tokens_per_mb, b.max_tokens_per_mb):
        return

    def take() -> None:
        state.set_other({"b.cap": None})
        state.update(max_tokens_per_mb=cap)

    box.button(f"Use {cap:,} for both", on_click=take, type="primary", key="other_use_cap")


def _draw_table(pair: Pair, compared: Compared) -> None:
    st.html(_CSS)
    heads = "".join(
        f'<th scope="col">{label} <span class="{label}" aria-hidden="true">{mark}</span><br>'
        f"<small>{html.escape(' · '.join([shown.side.title, *shown.tags]))}</small></th>"
        for label, mark, shown in (("A", "●", pair.a), ("B", "■", pair.b))
    )
    same = [line for line in compared.lines if line.difference == 0 and line.kinds == "exact"]
    body = "".join(_row(line) for line in compared.lines if line not in same)
    st.html(
        '<div class="compared-box" tabindex="0" role="region" aria-label="A and B in numbers">'
        f'<table class="compared"><thead><tr><th scope="col">measure</th>{heads}'
        '<th scope="col">B − A</th><th scope="col">in %</th><th scope="col">verdict</th></tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
    )
    if same:
        told = " · ".join(f"{line.name} {written(line.a)}" for line in same)
        st.caption(f"The same on both sides: {plain(told)}.")
    st.caption(
        "Figures without a mark are counted: exact, of one update over all ranks and minibatches, "
        "with rows in the order in which AReaL packs them. B is called better or worse only where "
        "two figures compare; otherwise the table says why they do not."
    )


def _row(line: ComparedFigure) -> Html:
    verdict = ""
    if line.winner:
        kind, words = _VERDICTS[line.winner]
        verdict = f'<span class="verdict {kind}">{words}</span>'
    elif line.note:
        verdict = f"<small>no verdict: {html.escape(line.note)}</small>"
    cells = (
        _cell(written(line.a), line.kind_a),
        _cell(written(line.b), line.kind_b),
        html.escape(written(line.difference, signed=True)),
        html.escape(percent(line)),
        verdict,
    )
    return (
        f'<tr><th scope="row">{html.escape(line.name)}</th>'
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
    )


def _cell(value: str, kind: str) -> Html:
    mark = "" if kind in ("", "exact") else f" <small>{html.escape(kind)}</small>"
    return html.escape(value) + mark


def _draw_figures(pair: Pair) -> None:
    a, b = pair.a, pair.b
    names = [a.side.title, b.side.title]
    span = _span(a, b)
    timed = [any(s.mode == "tree" and s.seconds for s in one.side.steps) for one in (a, b)]
    lengths = a.batch is not None and b.batch is not None and not same_rows(a.side, b.side)
    if not all(timed):
        lacking = "either side" if not any(timed) else "B" if timed[0] else "A"
        st.info(
            f"No step of {lacking} has been timed. The Tune page times the plan in use.",
            icon=":material/speed:",
        )
        to_tune("To the Tune page")
    if not lengths and not any(timed):
        _draw_curves(a, b, names, span)
        return
    left, right = st.columns(2, gap="medium")
    with left:
        _draw_curves(a, b, names, span)
    with right:
        if any(timed):
            _draw_steps(a, b, span, 290 if lengths else 560)
        if lengths:
            _draw_lengths(a, b, names)


def _draw_curves(a: Shown, b: Shown, names: list[str], span: tuple[int, int]) -> None:
    curves, growing = [], False
    for shown in (a, b):
        points: dict[int, Packed] = {}
        if shown.batch is not None and shown.counted is not None:
            points, complete = background.grown(shown.batch, shown.plan, Packed.of, "compare")
            growing = growing or not complete
            now = shown.counted.of_packer(shown.plan.packer)
            if now is not None:
                points[shown.plan.max_tokens_per_mb] = now
        curves.append(points)
    chart(
        caps_compared(curves, [s.plan.max_tokens_per_mb for s in (a, b)], names, span),
        "compare_caps",
        "Trees, tree_token_ratio and paid tokens at each max_tokens_per_mb, of A and of B.",
    )
    st.caption("Exact. A mark is the cap in use.")
    if growing:
        background.watch()
        st.caption("Still working on the whole range.")


def _draw_lengths(a: Shown, b: Shown, names: list[str]) -> None:
    assert a.batch is not None and b.batch is not None  # whoever calls has looked
    chart(
        lengths_compared([a.batch.rows.lengths, b.batch.rows.lengths], names),
        "compare_lengths",
        "Share of the rows by length, of A and of B in the same bins.",
    )


def _draw_steps(a: Shown, b: Shown, span: tuple[int, int], height: int) -> None:
    chart(
        steps_compared([a.side, b.side], span, same_rows(a.side, b.side), height),
        "compare_steps",
        "The step with trees at each max_tokens_per_mb, measured or estimated, of A and of B.",
    )
    machines = dict.fromkeys(one.side.where for one in (a, b) if one.side.where)
    st.caption(
        f"On {plain('; '.join(machines))}. Filled marks are measured, with their spread; hollow "
        "ones are estimated. What does not fit has no mark."
    )


def _draw_caps(compared: Compared) -> None:
    if not compared.caps:
        return
    with st.expander("Every step, cap by cap", icon=":material/table:"):
        lines = [
            {
                "way": one.mode,
                "max_tokens_per_mb": one.max_tokens_per_mb,
                "A, s": one.a_s,
                "A is": one.a_kind,
                "B, s": one.b_s,
                "B is": one.b_kind,
                "B ÷ A": one.ratio,
            }
            for one in compared.caps
        ]
        table(lines, key="compare_steps_table")


def _span(a: Shown, b: Shown) -> tuple[int, int]:
    """The caps that all figures show: those of both sides, counted or timed."""
    caps = [step.max_tokens_per_mb for one in (a, b) for step in one.side.steps]
    for one in (a, b):
        caps.append(one.plan.max_tokens_per_mb)
        if one.batch is not None and len(one.batch.rows):
            every = background.caps_in_view(one.batch, one.plan)
            caps += [min(every), max(every)]
    return min(caps), max(caps)


def draw_take(pair: Pair) -> None:
    """Go on with B."""
    b = pair.b.plan

    def take() -> None:
        state.update(**{name: getattr(b, name) for name in ("source", *FIELDS)})
        state.set_other({key: None for key in state.OTHER_KEYS if key != "vs"})

    st.button("Go on with B as the plan", icon=":material/check:", on_click=take, key="other_take")
