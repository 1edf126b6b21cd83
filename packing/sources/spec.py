"""SourceSpec: the choice of rows, as plain values that fit in a URL and in the run history.

Notable:
- two equal specs over the same bytes give the same rows: nothing else decides
- ``to_query`` holds only what differs from the defaults, so links stay short
- what comes back from a link is checked field by field: a link is untrusted
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from packing.sources.errors import SourceError, shown

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Kind = Literal["sample", "hub", "file", "upload"]
KINDS = ("sample", "hub", "file", "upload")
LENGTHS = ("lognormal", "percentiles", "column", "answer")
ROLES = (
    "input_ids",
    "attention_mask",
    "loss_mask",
    "segments",
    "prompt",
    "question",
    "completion",
    "messages",
    "text",
    "tools",
    "group",
    "step",
    "reward",
    "length",
    "seqlen",
)


SPEAKERS = ("system", "user", "assistant", "tool")
# Groups that AReaL may drop, and what is the matter with them.
DROPPED = {
    "equal-rewards": "have equal rewards",
    "incomplete": "have fewer samples than others",
}


@dataclass(frozen=True)
class Simulate:
    """How many completions to make up for each prompt, and how long they are.

    lengths:        "lognormal" (``median``, ``sigma``), "percentiles" (``percentiles``),
                    "column" or "answer": the median is each prompt's own number, spread by
                    ``sigma``
    median:         tokens
    sigma:          standard deviation of the logarithm of the length
    percentiles:    (percentile, tokens) pairs, ascending; lengths between are interpolated
    max_new_tokens: longer completions are cut there, as an engine cuts them
    """

    samples: int = 8
    lengths: str = "lognormal"
    median: float = 512.0
    sigma: float = 0.6
    percentiles: tuple[tuple[float, float], ...] = ()
    max_new_tokens: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("median", "sigma"):  # a caller writes 100 where a page has 100.0
            object.__setattr__(self, name, float(getattr(self, name)))
        one = f"choose one of {', '.join(LENGTHS)}"
        _check(self.lengths in LENGTHS, "simulate.lengths", self.lengths, one)
        _check(1 <= self.samples <= 4096, "simulate.samples", self.samples, "choose 1 to 4096")
        _check(
            0 < self.median <= 1e7 and 0 <= self.sigma <= 5,
            "simulate.median and sigma",
            (self.median, self.sigma),
            "choose a median of 1 to 10,000,000 tokens and a sigma of 0 to 5",
        )
        longest = self.max_new_tokens
        _check(
            longest is None or longest >= 1, "simulate.max_new_tokens", longest, "choose 1 or more"
        )
        if self.lengths == "percentiles":
            flat = [p for p, _ in self.percentiles], [n for _, n in self.percentiles]
            ascending = all(list(x) == sorted(x) for x in flat)
            inside = all(0 <= p <= 100 for p in flat[0]) and all(0 <= n <= 1e7 for n in flat[1])
            _check(
                len(self.percentiles) >= 2 and ascending and inside,
                "simulate.percentiles",
                self.percentiles,
                "give two or more ascending pairs such as (50, 400), (95, 2000)",
            )


@dataclass(frozen=True)
class SourceSpec:
    """Where rows come from and how records become rows.

    kind, location: "sample" and its name, "hub" and a dataset id, "file" and a path, glob or
                    folder, "upload" and the file's name
    start, limit:   the records read (records, not rows: one record may hold many rows)
    roles:          (role, path) pairs that replace what is recognised; a path is dotted
                    (``info.traj``), ``*`` stands for every key or element
    expand:         "conversation" (one row each) or "turn" (AReaL's rollouts)
    style:          with "turn": AReaL's "individual" (a row per assistant turn) or "concat"
                    (a row per chain of turns, broken where the prefix breaks)
    keep_thinking:  reasoning kept in past turns; None: as the chat template does
    tokenizer:      Hub id, folder, "bundled", or None (bundled where rows are text)
    versions:       of AReaL rollout dumps, the version folders read; empty: all of training
    speakers:       (role in the file, known role) pairs for messages of other ecosystems
    leave_out_odd:  records that no row can be made of are left out and listed, not refused
    leave_out:      groups that AReaL would drop: "equal-rewards", "incomplete"
    """

    kind: Kind
    location: str
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    streaming: bool = False
    start: int = 0
    limit: int | None = None
    roles: tuple[tuple[str, str], ...] = ()
    expand: str = "conversation"
    style: str = "individual"
    keep_thinking: bool | None = None
    tokenizer: str | None = None
    versions: tuple[str, ...] = ()
    speakers: tuple[tuple[str, str], ...] = ()
    leave_out_odd: bool = False
    leave_out: tuple[str, ...] = ()
    simulate: Simulate | None = field(default=None)

    def __post_init__(self) -> None:
        _check(self.kind in KINDS, "kind", self.kind, f"choose one of {', '.join(KINDS)}")
        there = bool(self.location) and "\0" not in self.location
        _check(there, "location", self.location, "give a path, a dataset id or a sample")
        for name, known in (
            ("expand", ("conversation", "turn")),
            ("style", ("individual", "concat")),
        ):
            value = getattr(self, name)
            _check(value in known, name, value, f"choose {' or '.join(known)}")
        some = 0 <= self.start < 2**53 and (self.limit is None or 1 <= self.limit < 2**53)
        _check(some, "rows", (self.start, self.limit), "start at 0 or later and read 1 or more")
        for role, path in self.roles:
            _check(role in ROLES, "roles", role, f"roles are {', '.join(ROLES)}")
            _check(bool(path), "roles", role, "name the column it is in")
        for _, speaker in self.speakers:
            one = f"choose one of {', '.join(SPEAKERS)}"
            _check(speaker in SPEAKERS, "speakers", speaker, one)
        for kind in self.leave_out:
            _check(kind in DROPPED, "leave_out", kind, f"choose {' or '.join(DROPPED)}")

    def to_json(self) -> dict[str, Any]:
        """Plain values without the defaults; ``from_json`` reads them back to an equal spec."""
        default = SourceSpec(self.kind, self.location)
        out = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name in ("kind", "location") or getattr(self, f.name) != getattr(default, f.name)
        }
        if self.simulate is not None:
            made = asdict(self.simulate)
            plain = asdict(Simulate())
            out["simulate"] = {k: v for k, v in made.items() if v != plain[k]}
        return out

    def to_query(self) -> str:
        """One URL query value (percent-encode it as any other)."""
        return json.dumps(self.to_json(), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_query(cls, text: str) -> SourceSpec:
        """The spec of a link. Raises SourceError where the link was cut or altered."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise SourceError(
                f"link: the source {shown(text)} is not readable; open the dataset again."
            ) from None
        return cls.from_json(value)

    @classmethod
    def from_json(cls, value: object) -> SourceSpec:
        """Raises SourceError naming a field that is unknown or of a wrong type."""
        from pydantic import ValidationError

        try:
            # As JSON once more, where a list may be a tuple and a whole number a float.
            return _adapter().validate_json(json.dumps([value]))[0]
        except ValidationError as errors:
            first = errors.errors()[0]
            if isinstance(raised := first.get("ctx", {}).get("error"), SourceError):
                raise raised from None
            where = ".".join(map(str, first["loc"][1:])) or "spec"
            mend = first["msg"][:1].lower() + first["msg"][1:]
            raise _setting(where, first["input"], mend) from None
        except (ValueError, TypeError, RecursionError):
            raise _setting("spec", value, "give plain values") from None

    @property
    def leaves_machine(self) -> bool:
        """Whether a load asks the Hub: for the rows, or for a tokenizer that is not bundled."""
        return self.kind == "hub" or self.tokenizer not in (None, "bundled")

    def with_roles(self, roles: Mapping[str, str]) -> SourceSpec:
        """The same source with these roles set (role to column path), the others as they were."""
        kept = tuple(pair for pair in self.roles if pair[0] not in roles)
        return replace(self, roles=kept + tuple(roles.items()))


def parse_rows(argument: str) -> SourceSpec:
    """``sample:NAME``, ``hub:ID[@revision][:split]``, a path, glob or folder, or a spec as JSON.

    Raises SourceError where nothing follows the prefix.
    """
    if argument.startswith("{"):
        return SourceSpec.from_query(argument)
    prefix, _, rest = argument.partition(":")
    if prefix == "sample":
        return SourceSpec("sample", rest)
    if prefix == "hub":
        name, _, split = rest.partition(":")
        dataset, _, revision = name.partition("@")
        return SourceSpec("hub", dataset, revision=revision or None, split=split or None)
    return SourceSpec("file", argument)


@cache
def _adapter() -> TypeAdapter[list[SourceSpec]]:
    from pydantic import ConfigDict, TypeAdapter

    # In a list, whose settings dataclasses take.
    return TypeAdapter(list[SourceSpec], config=ConfigDict(extra="forbid", strict=True))


def _check(good: bool, name: str, value: object, mend: str) -> None:
    if not good:
        raise _setting(name, value, mend)


def _setting(name: str, value: object, mend: str) -> SourceError:
    return SourceError(f"source setting '{name}' is {shown(value)}: {mend}.")
