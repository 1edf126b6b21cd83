"""What all commands share: ROWS and its options, sentences for errors, output."""

from __future__ import annotations

import functools
import inspect
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from packing.rows import Rows
from packing.sources.spec import Simulate, SourceSpec, parse_rows
from tuning.plan.commands import AT_A_CAP, CAP, command_fields
from tuning.plan.foreign import visible
from tuning.plan.plan import PlanError, TuningPlan, as_text, from_text, options, plain_type

if TYPE_CHECKING:
    from tuning.jobs.jobs import JobView
    from tuning.plan.batch import Batch

_LOOK_S = 0.2

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True)
class RowOptions:
    """ROWS and how its records become rows."""

    rows: Annotated[
        str,
        typer.Argument(
            metavar="ROWS",
            help="sample:NAME, hub:ID[@revision][:split], or a path, glob or folder of "
            ".npz, .jsonl, .json, .parquet, .arrow, .csv, .eval, .traj; or the JSON that the app "
            "writes.",
        ),
    ]
    expand: Annotated[str, typer.Option(help="conversation or turn: one row each.")] = (
        "conversation"
    )
    style: Annotated[str, typer.Option(help="With turn: individual or concat.")] = "individual"
    tokenizer: Annotated[
        str | None, typer.Option(help="Hub id, folder, or bundled; ids need none.")
    ] = None
    role: Annotated[
        list[str] | None, typer.Option(help="ROLE=COLUMN, where it is not recognised.")
    ] = None
    limit: Annotated[int | None, typer.Option(help="Records read at most.")] = None
    version: Annotated[
        list[str] | None, typer.Option(help="Version folder of an AReaL dump; all by default.")
    ] = None

    keep_thinking: Annotated[
        bool | None,
        typer.Option(
            "--keep-thinking/--strip-thinking",
            help="Reasoning of past turns; as the chat template does by default.",
        ),
    ] = None
    speaker: Annotated[
        list[str] | None,
        typer.Option(help="NAME=ROLE for a role of messages that is not known."),
    ] = None
    leave_out_odd: Annotated[
        bool, typer.Option("--leave-out-odd", help="List odd records instead of stopping there.")
    ] = False
    leave_out: Annotated[
        list[str] | None,
        typer.Option(help="Groups that AReaL would drop: equal-rewards or incomplete."),
    ] = None
    simulate: Annotated[int, typer.Option(help="Completions made up for each prompt; 0: none.")] = 0
    simulate_lengths: Annotated[
        str, typer.Option(help="With --simulate: lognormal, column or answer.")
    ] = "lognormal"
    simulate_median: Annotated[float, typer.Option(help="With --simulate: tokens.")] = 512.0
    simulate_sigma: Annotated[
        float, typer.Option(help="With --simulate: of the logarithm of the length.")
    ] = 0.6
    simulate_max: Annotated[int | None, typer.Option(help="With --simulate: max_new_tokens.")] = (
        None
    )
    simulate_seed: Annotated[int, typer.Option(help="With --simulate.")] = 0

    def spec(self) -> SourceSpec:
        """Raises SourceError naming an option that cannot be used."""
        spec = parse_rows(self.rows)
        given: dict[str, Any] = {
            "expand": self.expand,
            "style": self.style,
            "tokenizer": self.tokenizer,
            "limit": self.limit,
            "versions": tuple(self.version or ()),
            "keep_thinking": self.keep_thinking,
            "speakers": _assigned("--speaker", "NAME=ROLE", self.speaker),
            "leave_out_odd": self.leave_out_odd,
            "leave_out": tuple(self.leave_out or ()),
            "simulate": self._simulation(),
        }
        plain = SourceSpec("file", "-")  # an option left alone leaves what ROWS itself says
        spec = replace(spec, **{k: v for k, v in given.items() if v != getattr(plain, k)})
        return spec.with_roles(dict(_assigned("--role", "ROLE=COLUMN", self.role)))

    def _simulation(self) -> Simulate | None:
        if not self.simulate:
            return None
        return Simulate(
            samples=self.simulate,
            lengths=self.simulate_lengths,
            median=self.simulate_median,
            sigma=self.simulate_sigma,
            max_new_tokens=self.simulate_max,
            seed=self.simulate_seed,
        )

    def read(self) -> Rows:
        """Raises SourceError naming file, row and field."""
        from packing.sources.load import load

        return load(self.spec()).rows


@dataclass(frozen=True)
class PlanOptions(RowOptions):
    """ROWS and the fields of a plan that a command takes (``plan_options``), None: not given."""

    needs_cap: ClassVar[bool] = False
    config: Annotated[
        Path | None,
        typer.Option("--config", help="An AReaL YAML: engine, ranks, batch, cap, model are its."),
    ] = None

    def plan(self) -> TuningPlan:
        """What the options say, over what ``--config`` says, over the defaults.

        Raises PlanError naming what cannot be read, SourceError for what ROWS says, ConfigError.
        """
        given = {name: getattr(self, name, None) for name in options()}
        read = {
            name: from_text(name, as_text(value))
            for name, value in given.items()
            if value is not None
        }
        start = TuningPlan(source=self.spec())
        if self.config is not None:
            start = self._of_config(start)
        elif hasattr(self, CAP) and CAP not in read and self.needs_cap:
            raise PlanError("name a cap with --cap, or a --config that has one.")
        return replace(start, **read)

    def _of_config(self, start: TuningPlan) -> TuningPlan:
        """What a config does not cover goes to standard error, a sentence each."""
        from tuning.areal.config import ArealConfig
        from tuning.plan.from_config import fill_plan

        assert self.config is not None
        filled, notes = fill_plan(ArealConfig.read(self.config), start)
        for note in notes:
            say(note, err=True)
        taken = {name: getattr(filled, name) for name in options() if hasattr(self, name)}
        return replace(start, **taken)

    def runnable(self) -> TuningPlan:
        """The same, where nothing in the plan alone keeps it from being run. Raises PlanError."""
        plan = self.plan()
        if problems := plan.problems():
            raise PlanError(" ".join(problems))
        return plan

    def batch(self, plan: TuningPlan) -> Batch:
        """The batch that ``plan`` draws from ROWS. Raises SourceError."""
        from tuning.plan.batch import Batch

        return Batch.of(self.read(), plan)


def plan_options(command: str) -> type[PlanOptions]:
    """The options of a command: ROWS, and an option for each of the plan's fields that it takes."""
    default = TuningPlan()
    made = []
    for name in command_fields(command):
        option, kind = options()[name], plain_type(name)
        kind = kind if kind in (int, float, bool) else str
        needed = name == CAP and command in AT_A_CAP
        usual = "" if needed or kind is bool else as_text(getattr(default, name))
        said = f"{option.help} Default: {usual}." if usual else option.help
        about = typer.Option(*option.flags, help=said)
        hint: Any = Annotated[kind | None, about]
        made.append((name, hint, field(default=None, kw_only=True)))
    needs_cap = {"needs_cap": command in AT_A_CAP}
    return make_dataclass(
        "PlanOptions", made, bases=(PlanOptions,), frozen=True, namespace=needs_cap
    )


def row_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's first parameter, ``options``, by the fields of its class.

    That is RowOptions, or what ``plan_options`` makes of the command's name.
    """
    group = get_type_hints(command)["options"]
    if group is PlanOptions:
        group = plan_options(command.__name__)
    hints = {
        name: hint
        for source in (group, command)
        for name, hint in get_type_hints(source, include_extras=True).items()
        if name not in ("options", "return")
    }
    fields = list(inspect.signature(group).parameters.values())
    own = list(inspect.signature(command).parameters.values())[1:]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        options = group(**{f.name: given.pop(f.name) for f in fields})
        command(options, **given)

    wrapped.__annotations__ = hints
    wrapped.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[p.name])
            for p in [*fields, *own]
        ]
    )
    return wrapped


def _assigned(option: str, form: str, given: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """``A=B`` texts as pairs. Raises ValueError where one has another form."""
    pairs = [text.partition("=") for text in given or ()]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise ValueError(f"{option} {name}: write {form}")
    return tuple((name, value) for name, _, value in pairs)


def followed(
    kind: str,
    plan: TuningPlan,
    rows: Rows,
    arguments: Mapping[str, Any],
    timeout_s: float,
    others: Sequence[Rows] = (),
) -> JobView:
    """Run a job to its end, its progress on standard error; Ctrl-C stops it.

    The app finds it again by the rows, and a sweep by the question of its plan. Raises RuntimeError
    with what the worker said where it failed.
    """
    from tuning.jobs.jobs import Jobs
    from tuning.sweep.result import question_of

    if not len(rows):
        raise ValueError("there are no rows in this batch")
    jobs = Jobs()
    found_by = {"data": rows.fingerprint, "question": question_of(plan)}
    job = jobs.start(kind, plan, rows, found_by | dict(arguments), timeout_s, others)
    said = ""
    try:
        while (view := jobs.view(job)).active:
            if view.message != said:
                said = view.message
                say(said, err=True)
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        jobs.cancel(job)
        raise RuntimeError("stopped; what was measured is kept, the same command goes on") from None
    if view.state != "done":
        raise RuntimeError(f"{view.message} (log: {jobs.folder / job / 'log.txt'})")
    return view


def say(text: str, err: bool = False) -> None:
    """Print; what is in somebody's data moves no cursor and sets no title of the terminal."""
    typer.echo(visible(text), err=err)


@contextmanager
def sentences() -> Iterator[None]:
    """Errors meant for people become one sentence and exit code 1."""
    try:
        yield
    except typer.Exit:  # which is a RuntimeError
        raise
    except (ValueError, RuntimeError, OSError) as error:
        say(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def show(result: Mapping[str, Any], as_json: bool) -> None:
    """One JSON object, or a line for each plain figure."""
    if as_json:
        say(json.dumps(result))
        return
    for name, value in result.items():
        if isinstance(value, Mapping) and all(isinstance(v, float) for v in value.values()):
            show({f"{name}: {key}": v for key, v in value.items()}, False)
        elif isinstance(value, bool):
            say(f"{name:<42} {'yes' if value else 'no'}")
        elif isinstance(value, float):
            say(f"{name:<42} {value:,.4f}")
        elif isinstance(value, int):
            say(f"{name:<42} {value:,}")
        elif isinstance(value, str):
            say(f"{name:<42} {value}")
