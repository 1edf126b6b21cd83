"""AReaL's logs read back: what it packed, laid beside what was predicted.

Notable:
- read are the lines "Packed tree #microbatch: …" and the statistics ``tree_token_ratio`` and
  ``num_micro_batches``, as tables, ``key: value`` lines or JSON
- AReaL's ratio leaves out padding and dummy trees; ``num_micro_batches`` counts dummies
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from packing.batch.simulation import BatchSimulation

MOST_BYTES = 64 * 2**20
_PACKED = re.compile(
    r"Packed tree #microbatch:\s*(\d+),\s*microbatch #tokens:\s*\[([^\]]*)\],\s*"
    r"padded to:\s*\[([^\]]*)\](?:,\s*padding lengths:\s*\[([^\]]*)\])?"
)
_STATISTIC = re.compile(
    r"([\w./-]*\b(?:tree_token_ratio|num_micro_batches))[\"']?\s*[:=|│┃,]?\s*"
    r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
)
_LOGGED_DIGITS = 5e-5
"""Half of the last digit that AReaL prints of a statistic (``.4e``), relative."""


class LogError(ValueError):
    """The text holds nothing of AReaL's tree training; the message says what to look for."""


@dataclass(frozen=True)
class PackedLine:
    """One "Packed tree" line: one pass of one rank.

    line:      its number in the log, from 1
    tokens:    tokens of each tree; 0 is a dummy tree
    padded_to: what each tree is padded to
    """

    line: int
    microbatches: int
    tokens: tuple[int, ...]
    padded_to: tuple[int, ...]

    @property
    def trees(self) -> int:
        """Trees with rows in them."""
        return sum(1 for count in self.tokens if count)

    @property
    def dummies(self) -> int:
        return self.microbatches - self.trees

    @property
    def tree_tokens(self) -> int:
        return sum(self.tokens)


@dataclass(frozen=True)
class Logs:
    """What a log holds. ``statistics``: key to its values, in the order logged."""

    packed: tuple[PackedLine, ...] = ()
    statistics: dict[str, list[float]] = field(default_factory=dict)

    def values(self, name: str) -> list[float]:
        """Values of every key that ends in ``name``."""
        return [v for key, vs in self.statistics.items() if key.endswith(name) for v in vs]

    @property
    def caps(self) -> tuple[int, ...]:
        """``max_tokens_per_mb`` as the log shows it, ascending; several where it changed."""
        return tuple(sorted({cap for one in self.packed for cap in one.padded_to}))


@dataclass(frozen=True)
class LogLine:
    """One figure, predicted and logged, and a sentence where they differ."""

    figure: str
    predicted: str
    logged: str
    agrees: bool
    why: str = ""


def read_logs(text: str) -> Logs:
    """Raises LogError where nothing is found, or the text is too large."""
    if len(text) > MOST_BYTES:
        raise LogError(
            f"The log has {len(text) / 2**20:.0f} MiB; at most {MOST_BYTES // 2**20} are read. "
            "Keep the lines with “Packed tree” and “tree_token_ratio”."
        )
    packed: list[PackedLine] = []
    found: dict[str, list[float]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _PACKED.search(line)
        if match:
            count, tokens, padded, _ = match.groups()
            packed.append(PackedLine(number, int(count), _numbers(tokens), _numbers(padded)))
            continue
        for key, value in _STATISTIC.findall(line):
            found.setdefault(key, []).append(float(value))
    if not packed and not found:
        raise LogError(
            "No line of AReaL's tree training was found. Look for “Packed tree #microbatch:” in "
            "the trainer's log, or “tree_token_ratio” in its statistics; both need "
            "enable_tree_training: true."
        )
    return Logs(tuple(packed), found)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def compare(logs: Logs, chain: BatchSimulation) -> list[LogLine]:
    """The log beside the prediction for one batch, each difference explained."""
    lines = [*_cap(logs, chain), *_same_batch(logs, chain)]
    passes = [chain.compute_logp, *chain.ppo_update]
    if logs.packed:
        counts = [one.microbatches for one in logs.packed]
        lines.append(
            _ranged("trees a pass, dummies counted", [p.trees_per_rank for p in passes], counts)
        )
        lines.append(
            _ranged(
                "dummy trees a rank and pass",
                [rank.dummies for p in passes for rank in p.ranks],
                [one.dummies for one in logs.packed],
            )
        )
    logp = [rank.tree_token_ratio for rank in chain.compute_logp.ranks]
    update = [rank.tree_token_ratio for p in chain.ppo_update for rank in p.ranks]
    for key, values in logs.statistics.items():
        if key.endswith("tree_token_ratio"):
            own = update if "update" in key else logp
            lines.append(_mean(key, statistics.fmean(own), values))
        else:
            trees = [p.trees_per_rank for p in chain.ppo_update]
            lines.append(_mean(key, statistics.fmean(trees), values))
    return lines


def _cap(logs: Logs, chain: BatchSimulation) -> Iterator[LogLine]:
    if logs.caps:
        cap = chain.spec.max_tokens_per_mb
        agrees = logs.caps == (cap,)
        why = "" if agrees else "The run used another max_tokens_per_mb; predict with that one."
        yield LogLine("max_tokens_per_mb", f"{cap:,}", _joined(logs.caps), agrees, why)


def _same_batch(logs: Logs, chain: BatchSimulation) -> Iterator[LogLine]:
    """Whether some logged pass is exactly a predicted one."""
    if not logs.packed:
        return
    predicted = {
        tuple(rank.tokens_per_tree.tolist())
        for one in (chain.compute_logp, *chain.ppo_update)
        for rank in one.ranks
    }
    same = sum(tuple(t for t in one.tokens if t) in predicted for one in logs.packed)
    yield LogLine(
        "passes equal tree by tree",
        f"{len(predicted)} different passes",
        f"{same} of {len(logs.packed)} lines are one of them",
        same == len(logs.packed),
        ""
        if same == len(logs.packed)
        else "The run packs other batches than this one: AReaL shuffles prompts and samples new "
        "rows in every step. Compare the averages, or load the run's own dump.",
    )


def _ranged(name: str, predicted: Sequence[int], logged: Sequence[int]) -> LogLine:
    agrees = min(predicted) <= min(logged) and max(logged) <= max(predicted)
    why = "" if agrees else "Other batches, ranks or minibatches than the plan's."
    return LogLine(name, _spread(predicted), _spread(logged), agrees, why)


def _mean(name: str, predicted: float, logged: Sequence[float]) -> LogLine:
    mean = statistics.fmean(logged)
    agrees = abs(mean - predicted) <= _LOGGED_DIGITS * abs(predicted)
    why = ""
    if not agrees:
        gap = mean / predicted - 1 if predicted else 0.0
        why = (
            f"{gap:+.1%} over {len(logged)} logged values: the rows of these steps share "
            f"{'less' if mean > predicted else 'more'} than this batch."
            if name.endswith("ratio")
            else f"{mean - predicted:+.2f} on average: rows of these steps are "
            f"{'more or longer' if mean > predicted else 'fewer or shorter'}."
        )
    spread = "" if len(logged) == 1 else f" ({min(logged):.4g}–{max(logged):.4g})"
    return LogLine(name, f"{predicted:.4g}", f"{mean:.4g}{spread}", agrees, why)


def _spread(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _joined(values: Sequence[int]) -> str:
    return ", ".join(f"{value:,}" for value in values)
