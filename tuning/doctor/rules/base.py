"""What a rule is, what it sees, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from packing.rows import Rows
from packing.spec import BLOCK_SIZE
from tuning.areal.backend import Backend
from tuning.areal.config import UNKNOWN, ArealConfig
from tuning.areal.models import Model, find_model
from tuning.areal.schema import Version

Severity = Literal["fails at start", "fails at first batch", "silently wrong", "slow", "no effect"]
ERRORS: tuple[Severity, ...] = ("fails at start", "fails at first batch", "silently wrong")
_WHEN: dict[Severity, str] = {
    "fails at start": "when the run starts",
    "fails at first batch": "when the first batch is packed",
    "silently wrong": "never: no error is raised, the gradients are wrong",
    "slow": "in every step",
    "no effect": "never: the setting is not read",
}


@dataclass(frozen=True)
class Finding:
    """One thing that a rule found.

    rule:    its id
    problem: what is wrong, and where
    says:    AReaL's own words, or nothing where it is silent
    when:    when it shows
    mend:    the smallest change that removes it
    fix:     that change as paths and values, where a value can be set; else empty
    source:  where AReaL's behaviour is written
    """

    rule: str
    severity: Severity
    problem: str
    mend: str
    says: str = ""
    when: str = ""
    path: str = ""
    line: int | None = None
    source: str = ""
    fix: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_error(self) -> bool:
        return self.severity in ERRORS

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"fix": dict(self.fix)}


@dataclass(frozen=True)
class Found:
    """What a rule's function yields; the rule adds the rest."""

    problem: str
    mend: str
    says: str = ""
    path: str = ""
    when: str = ""
    severity: Severity | None = None
    fix: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Case:
    """What rules look at: a config, the version it is for, and rows where there are any.

    memo: work that several rules share
    """

    config: ArealConfig
    version: Version = "1.0.4"
    rows: Rows | None = None
    memory_budget_gib: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    memo: dict[str, Any] = field(default_factory=dict)

    def get(self, path: str) -> Any:
        return self.config.get(path, self.version)

    def actor(self, name: str) -> Any:
        return self.config.actor(name, self.version)

    def path(self, name: str) -> str:
        """The whole path of one of the actor's keys."""
        return self.config.prefix + name

    @cached_property
    def backend(self) -> Backend | None:
        return self.config.backend

    @property
    def engine(self) -> str | None:
        return None if self.backend is None else self.backend.engine

    @cached_property
    def model(self) -> Model | None:
        path = self.actor("path")
        return find_model(path, self.config.folder) if isinstance(path, str) else None

    @cached_property
    def env(self) -> dict[str, str]:
        return self.config.env() | dict(self.environment)

    @property
    def spmd(self) -> bool:
        return self.env.get("AREAL_SPMD_MODE") == "1"

    @property
    def is_ppo(self) -> bool:
        return self.config.trainer in ("ppo", "engine")

    @property
    def block(self) -> int:
        """AReaL's tile edge; ``AREAL_FLEX_ATTENTION_BLOCK_SIZE`` sets another."""
        text = self.env.get("AREAL_FLEX_ATTENTION_BLOCK_SIZE", "")
        return int(text) if text.isdecimal() and int(text) else BLOCK_SIZE

    @cached_property
    def cap(self) -> int | None:
        """``max_tokens_per_mb`` where it is a positive number."""
        value = self.actor("mb_spec.max_tokens_per_mb")
        return value if isinstance(value, int) and value > 0 else None

    def whole(self, path: str) -> int | None:
        """A positive whole number at ``path``, its default counted; None otherwise."""
        value = self.get(path)
        known = value is not UNKNOWN and isinstance(value, int) and not isinstance(value, bool)
        return value if known and value > 0 else None

    @property
    def tree_key(self) -> str:
        """The key that turns tree training on in this version."""
        if self.version == "tree_training_mode":
            return "tree_training_mode"
        return "enable_tree_training"

    @property
    def tree_value(self) -> Any:
        return "sparse" if self.version == "tree_training_mode" else True

    def tree_on(self, role: str = "actor") -> bool:
        """Whether ``role`` trains or infers over trees."""
        prefix = self.config.prefix if role == "actor" else f"{role}."
        if self.get(f"{prefix}enable_tree_training") is True:
            return True
        return self.get(f"{prefix}tree_training_mode") in ("sparse", "dta")

    @property
    def uses_ref(self) -> bool:
        """Whether a reference pass runs: ``ref`` is configured and ``kl_ctl`` is above 0."""
        kl = self.actor("kl_ctl")
        return (
            self.config.trainer == "ppo"
            and self.config.has("ref")
            and self.get("ref") is not None
            and isinstance(kl, int | float)
            and kl > 0
        )


Check = Callable[[Case], Iterator[Found]]


@dataclass(frozen=True)
class Rule:
    """One rule. ``always``: it holds without tree training too."""

    id: str
    severity: Severity
    source: str
    check: Check
    always: bool = False

    def findings(self, case: Case) -> Iterator[Finding]:
        for one in self.check(case):
            severity = one.severity or self.severity
            when = one.when or _WHEN[severity]
            if severity == "fails at first batch" and not one.when and case.is_ppo:
                when += ", after a whole rollout"
            yield Finding(
                rule=self.id,
                severity=severity,
                problem=one.problem,
                mend=one.mend,
                says=one.says,
                when=when,
                path=one.path,
                line=case.config.line(one.path) if one.path else None,
                source=self.source,
                fix=one.fix,
            )


RULES: list[Rule] = []


def rule(
    id: str, severity: Severity, source: str, always: bool = False
) -> Callable[[Check], Check]:
    """Register a function as a rule."""

    def register(check: Check) -> Check:
        RULES.append(Rule(id, severity, source, check, always))
        return check

    return register
