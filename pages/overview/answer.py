"""The answer of the Overview page: one cap with what it rests on, the next step, what is lost."""

from __future__ import annotations

import html
from collections.abc import Mapping

import streamlit as st

from pages.shared import data, measured, state, waiting
from pages.shared.text import Html, plain
from pages.tune import jobs as tune_jobs
from tuning.advice import Advice, advise, known_sweep
from tuning.plan.batch import Batch
from tuning.plan.gpus import gpu_named
from tuning.plan.losses import Loss
from tuning.plan.numbers import about, number
from tuning.plan.plan import TuningPlan
from tuning.workspace.workspace import sweep_of

_KINDS = {"counted": "green", "measured": "blue", "estimated": "orange"}
_BUTTONS: Mapping[str, tuple[str, str]] = {
    "measure": ("Measure it on the Tune page", "tune"),
    "measure more": ("Measure more on the Tune page", "tune"),
    "export": ("Export the config", "export"),
    "leave off": ("Choose other rows", "dataset"),
}
_NAMES = {"dp_size": "ranks", "ppo_n_minibatches": "ppo_n_minibatches"}
_WASTE = ("padding", "ranks")
_FITS = 1.5
"""All tokens are drawn to scale where they are at most so many times as long as the rest."""

_CSS = """
<style>
.way { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
.way :is(th, td) { text-align: left; padding: 0.3rem 0.8rem 0.3rem 0; vertical-align: top;
  font-size: 0.9rem; }
.way th { font-weight: 600; white-space: nowrap; }
.way td.n { text-align: right; white-space: nowrap; }
.way td.bar { width: 34%; min-width: 8rem; }
.way .bar i { display: block; height: 1.05rem; min-width: 2px; position: relative; }
.way .all { background: var(--orange); } .way .left { background: var(--blue); }
.way .more { background: var(--orange); } .way .less { background: var(--blue); }
.way .paid { background: var(--green); }
.way .waste { background: repeating-linear-gradient(135deg, var(--grey) 0 2px, transparent 2px 6px);
  outline: 1px solid var(--grey); outline-offset: -1px; }
.way tr:last-child > * { border-top: 1px solid var(--edge); font-weight: 600; }
.way small { opacity: 0.8; display: block; }
.way-box { overflow-x: auto; }
</style>
"""


def advice_of(batch: Batch, plan: TuningPlan) -> Advice:
    """What ``advise`` says of the plan; an estimate for a GPU joins it when it is there."""
    if batch.refusal(plan):
        return advise(batch, plan)
    points, job = measured.points(batch.rows.fingerprint), tune_jobs.own(batch)
    if job is None and _only_estimated(plan):
        rows = data.loaded().rows
        longest = min(rows.longest, plan.max_new_tokens or rows.longest)
        tune_jobs.start(batch, longest, rows)  # it measures nothing, and takes a few seconds
        job = tune_jobs.own(batch)
    if job is not None and job.active:
        st.caption(plain(f"{job.message[:1].upper()}{job.message[1:]} …"))
        waiting.redraw_as_it_goes(tune_jobs.jobs(), job)
    sweep = sweep_of(job) if job and not job.active else None
    return advise(batch, plan, known_sweep(batch, plan, sweep, points))


def _only_estimated(plan: TuningPlan) -> bool:
    """Whether the device is a GPU that is not here."""
    try:
        return gpu_named(plan.device) is not None and not plan.problems()
    except ValueError as error:
        st.warning(plain(error), icon=":material/help:")
        return False


def draw_answer(advice: Advice) -> None:
    """The one cap, what it rests on, how much room it leaves, the one button, the change."""
    best = advice.recommended
    assert best is not None  # where AReaL stops the page has said so
    with st.container(border=True):
        trees = best.layout == "tree"
        st.metric(
            "recommended max_tokens_per_mb" if trees else "recommended",
            number(best.max_tokens_per_mb) if trees else "no trees",
            help="The most tokens of one tree. A larger one shares more and needs more memory.",
        )
        st.markdown(f":{_KINDS[best.kind]}-badge[{plain(best.kind)}] {plain(best.rests_on)}")
        for sentence in filter(None, (advice.headroom, advice.saved)):
            st.caption(plain(sentence))
        _draw_next(advice)
        if advice.changes:
            st.code(advice.changes, language="bash", wrap_lines=True)


def _draw_next(advice: Advice) -> None:
    best = advice.recommended
    if advice.next_step == "use" and best is not None:
        st.button(
            f"Use {number(best.max_tokens_per_mb)}",
            type="primary",
            on_click=state.update,
            kwargs={"max_tokens_per_mb": best.max_tokens_per_mb},
            key="overview_use",
        )
        return
    label, page = _BUTTONS[advice.next_step]
    if st.button(label, type="primary", key="overview_next"):
        st.switch_page(f"{page}/page.py")


def draw_way(batch: Batch, advice: Advice) -> None:
    """From all tokens to paid ones, a step a line, and what would take a step away."""
    steps = advice.losses
    paid, rest = steps[-1].total, [step.total for step in steps[1:]]
    scale = max(*rest, 1)
    if steps[0].total <= _FITS * scale:
        scale = max(scale, steps[0].total)
    rows = [_line(step, scale, at) for at, step in enumerate(steps)]
    of_rows = number(paid / max(batch.rows.n_tokens, 1), ".3f")
    rows.append(
        f'<tr><th scope="row">paid</th>{_bar("paid", 0, paid, scale)}'
        f'<td class="n">{number(paid)}</td><td>{of_rows} of the rows’ tokens</td></tr>'
    )
    st.header("Where the tokens go", anchor=False)
    st.html(
        f'{_CSS}<div class="way-box" tabindex="0" role="region" aria-label="From all tokens to '
        f'paid ones"><table class="way"><tbody>{"".join(rows)}</tbody></table></div>'
    )
    levers = [step for step in steps if step.lever and step.tokens > 0]
    with st.container(horizontal=True):
        for step in levers:
            ((name, value),) = step.lever.items()
            st.button(
                plain(f"{_NAMES[name]} {value}: −{about(step.tokens)} tokens"),
                help=plain(step.changes),
                on_click=state.update,
                kwargs=dict(step.lever),
                key=f"overview_lever_{name}",
            )


def _line(step: Loss, scale: int, at: int) -> Html:
    before = step.total - step.tokens
    low, high = sorted((before, step.total))
    kind = "waste" if step.name in _WASTE else "more"
    if at < 2:  # all tokens, then what is left of them
        low, high, kind = 0, step.total, ("all", "left")[at]
    elif step.tokens < 0:
        kind = "less"
    beyond = f" (its bar is cut: {about(high / scale)} times as long)" * (high > scale)
    words = html.escape(step.why + beyond)
    if step.tokens > 0:
        words += f"<small>{html.escape(step.changes)}</small>"
    return (
        f'<tr><th scope="row">{html.escape(step.name)}</th>{_bar(kind, low, high, scale)}'
        f'<td class="n">{number(step.tokens, "+,d" if at else ",d")}</td><td>{words}</td></tr>'
    )


def _bar(kind: str, low: int, high: int, scale: int) -> Html:
    left, end = (100 * min(value / scale, 1) for value in (low, high))
    style = f"margin-left:{left:.2f}%;width:{end - left:.2f}%"
    return f'<td class="bar"><i class="{html.escape(kind)}" style="{style}"></i></td>'
