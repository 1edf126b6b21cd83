"""What a rule is, what it sees, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import Any, Literal

from packing.rows import Rows
from packing.spec import BLOCK_SIZE
from tuning.areal.backend import Backend, BackendError, Server
from tuning.areal.config import UNKNOWN, ArealConfig
from tuning.areal.models import Model, find_model
from tuning.areal.names import TREES_SERVE
from tuning.areal.schema import Version

Severity = Literal["fails at start", "fails at first batch", "silently wrong", "slow", "no effect"]
Scope = Literal["trees", "engine", "actor", "file"]
"""Each engine whose trees are on, each engine; the actor with trees, the file as a whole."""
MOST_TOKENS = 2**32
"""Of a tree: its mask alone would have more bytes than any machine."""
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
        """Plain values; a number that JSON has not (nan, inf) as YAML writes it."""
        fix = {
            path: str(value) if isinstance(value, float) and not isfinite(value) else value
            for path, value in self.fix.items()
        }
        return asdict(self) | {"fix": fix}


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

    role: the engine in question: ``actor``, ``ref``, ``critic``, ``teacher.train``; empty where
          the file is an engine's config itself
    memo: work that several rules share
    """

    config: ArealConfig
    version: Version = "1.0.4"
    rows: Rows | None = None
    memory_budget_gib: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    memo: dict[str, Any] = field(default_factory=dict)
    role: str = "actor"

    def get(self, path: str) -> Any:
        return self.config.get(path, self.version)

    def setting(self, name: str) -> Any:
        """``get`` of one of this engine's keys."""
        return self.get(self.path(name))

    def path(self, name: str) -> str:
        """The whole path of one of this engine's keys."""
        if self.config.trainer == "engine":
            return name
        return f"{self.role}.{name}"

    def of(self, role: str) -> Case:
        """The same with another engine in question."""
        return replace(self, role=role)

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """The engines that the run makes."""
        if self.config.trainer not in ("ppo", "sft", "rw", "dpo"):
            return ("actor",) if self.config.trainer == "engine" else ()
        teacher = "teacher.train" if self._section("teacher.train") else "teacher"
        roles = ["actor"] if self._section("actor") or not self.config.fragment else []
        if self._section("ref") and (self.config.trainer == "dpo" or self._kl_above_zero):
            roles.append("ref")
        if self._section("critic"):
            roles.append("critic")
        trains = self.config.field(f"{teacher}.backend", self.version) is not None
        if self._section(teacher) and trains and self.get("teacher.engine_type") != "rollout":
            roles.append(teacher)
        return tuple(roles)

    def _section(self, path: str) -> bool:
        return self.config.has(path) and isinstance(self.get(path), Mapping)

    @property
    def _kl_above_zero(self) -> bool:
        kl = self.get("actor.kl_ctl")
        return isinstance(kl, int | float) and kl > 0

    @cached_property
    def backend(self) -> Backend | None:
        return self.config.backend_of(self.path(""), self.version)

    @property
    def engine(self) -> str | None:
        return None if self.backend is None else self.backend.engine

    @cached_property
    def server(self) -> Server | None:
        """The rollout's server; None where absent or not readable."""
        text = self.get("rollout.backend")
        try:
            return Server.parse(text) if isinstance(text, str) else None
        except BackendError:
            return None

    @cached_property
    def model(self) -> Model | None:
        path = self.setting("path")
        return find_model(path, self.config.folder) if isinstance(path, str) else None

    @cached_property
    def env(self) -> dict[str, str]:
        return self.config.env(self.path("")) | dict(self.environment)

    def number_of(self, variable: str) -> int | None:
        """An environment variable as AReaL's ``int(…)`` reads it; None where it is absent.

        Raises ValueError as AReaL does when it is imported.
        """
        text = self.env.get(variable)
        return None if text is None else int(text)

    @property
    def spmd(self) -> bool:
        return self.of("actor").env.get("AREAL_SPMD_MODE") == "1"

    @property
    def shares_process(self) -> bool:
        """Whether this engine runs in the actor's process."""
        if self.spmd:
            return True
        if self.role == "actor":
            return any(self.of(role).shares_process for role in self.engines if role != "actor")
        strategy = self.setting("scheduling_strategy")
        if not isinstance(strategy, Mapping):
            return False
        joined = strategy.get("type") == "colocation" and strategy.get("target") == "actor"
        return joined and strategy.get("fork") is False

    @property
    def is_ppo(self) -> bool:
        return self.config.trainer in TREES_SERVE

    @property
    def is_critic(self) -> bool:
        """Whether the engine has a value head: AReaL runs no trees there."""
        reward = self.config.trainer == "rw"
        return reward or self.role == "critic" or self.setting("is_critic") is True

    @property
    def block(self) -> int:
        """AReaL's tile edge; ``AREAL_FLEX_ATTENTION_BLOCK_SIZE`` sets another."""
        try:
            size = self.number_of("AREAL_FLEX_ATTENTION_BLOCK_SIZE")
        except ValueError:
            return BLOCK_SIZE
        return size if size and size > 0 else BLOCK_SIZE

    @cached_property
    def cap(self) -> int | None:
        """``max_tokens_per_mb`` where it is a positive number that a tree could have."""
        value = self.setting("mb_spec.max_tokens_per_mb")
        return value if isinstance(value, int) and 0 < value <= MOST_TOKENS else None

    @property
    def minibatches(self) -> int | None:
        """``ppo_n_minibatches`` as AReaL runs it; None where it is not known."""
        if self.setting("prox_logp_method") == "reuse_train_logp":
            return 1
        return self.whole(self.path("ppo_n_minibatches"))

    def whole(self, path: str) -> int | None:
        """A positive whole number at ``path``, its default counted; None otherwise."""
        value = self.get(path)
        known = value is not UNKNOWN and isinstance(value, int) and not isinstance(value, bool)
        return value if known and value > 0 else None

    @property
    def batch_size(self) -> int | None:
        """Prompts of a batch where the file says so."""
        named = "train_dataset.batch_size"
        return self.whole(named) if self.config.has(named) else None

    @property
    def tree_key(self) -> str:
        """The key that turns tree training on in this version."""
        if self.version == "tree_training_mode":
            return "tree_training_mode"
        return "enable_tree_training"

    @property
    def tree_value(self) -> Any:
        return "sparse" if self.version == "tree_training_mode" else True

    @property
    def trees(self) -> bool:
        """Whether this engine trains or infers over trees."""
        if self.setting("enable_tree_training") is True:
            return True
        return self.setting("tree_training_mode") in ("sparse", "dta")

    def found(
        self,
        name: str,
        problem: str,
        mend: str = "",
        says: str = "",
        to: Any = None,
        when: str = "",
        severity: Severity | None = None,
    ) -> Found:
        """What is wrong at one of this engine's keys.

        to: the value that mends it, where one does; without ``mend`` that is the mend
        """
        path = self.path(name)
        fix = {} if to is None else {path: to}
        return Found(problem, mend or set_to(fix), says, path, when, severity, fix)


def word(value: Any) -> str:
    """A value as YAML writes it, text without quotes."""
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


def set_to(fix: Mapping[str, Any]) -> str:
    """The sentence of a mend that sets values; empty where there are none."""
    steps = " and ".join(f"{path} to {word(value)}" for path, value in fix.items())
    return steps and f"Set {steps}."


@dataclass(frozen=True)
class Refusal:
    """A row of a table of refusals: of which key, when, what is said, and which values mend it."""

    key: str
    wrong: Callable[[Case], bool]
    problem: str
    says: str
    fix: Mapping[str, Any] = field(default_factory=dict)

    def found(self, path: Callable[[str], str] = str, when: str = "") -> Found:
        """``path``: the whole path of a key."""
        fix = {path(key): value for key, value in self.fix.items()}
        mend = set_to(fix) or f"Correct {path(self.key)}."
        return Found(self.problem, mend, self.says, path(self.key), when, fix=fix)


Check = Callable[[Case], Iterator[Found]]


@dataclass(frozen=True)
class Rule:
    """One rule.

    scope:  whom it is asked of, and whether without tree training too
    engine: it is asked where this engine runs; empty: of any
    """

    id: str
    severity: Severity
    source: str
    check: Check
    scope: Scope = "trees"
    engine: str = ""

    @property
    def always(self) -> bool:
        """Whether it holds without tree training too."""
        return self.scope in ("engine", "file")

    def findings(self, case: Case) -> Iterator[Finding]:
        """Of each engine in question whose trees are on, or of all where the rule holds always."""
        for role in case.engines if self.scope in ("trees", "engine") else ("actor",):
            asked = case.of(role)
            if self.engine in ("", asked.engine) and (self.always or asked.trees):
                yield from self._of(asked)

    def _of(self, case: Case) -> Iterator[Finding]:
        for one in self.check(case):
            elsewhere = bool(one.path) and not case.config.has(one.path.partition("[")[0])
            if case.config.fragment and elsewhere and one.path != case.path(case.tree_key):
                continue  # the rest of the config may hold it
            severity = one.severity or self.severity
            when = one.when or _WHEN[severity]
            if severity == "fails at first batch" and not one.when and case.is_ppo:
                when += ", after a whole rollout"
            yield Finding(
                rule=self.id,
                severity=severity,
                problem=one.problem if case.role == "actor" else f"{case.role}: {one.problem}",
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
    id: str, severity: Severity, source: str, scope: Scope = "trees", engine: str = ""
) -> Callable[[Check], Check]:
    """Register a function as a rule."""

    def register(check: Check) -> Check:
        RULES.append(Rule(id, severity, source, check, scope, engine))
        return check

    return register
