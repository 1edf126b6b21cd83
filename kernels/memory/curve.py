"""Peak memory at any number of tokens, from a few that were traced.

Notable:
- in each phase each kind of memory is constant, grows with tokens, or, as AReaL's dense mask does,
  with their square: three traces give all three, and the peak is the largest phase's
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kernels.memory.peak import MemoryEstimate

_MOST_TOKENS = 2**26


@dataclass(frozen=True)
class MemoryCurve:
    """Estimates at three or more numbers of tokens, and what follows for all others."""

    traced: Mapping[int, MemoryEstimate]

    @classmethod
    def through(cls, smallest: int, estimate: Callable[[int], MemoryEstimate]) -> MemoryCurve:
        """Traced at ``smallest`` tokens, at twice and at four times as many."""
        return cls({n: estimate(n) for n in (smallest, 2 * smallest, 4 * smallest)})

    def at(self, n_tokens: int) -> MemoryEstimate:
        """The estimate at a number of tokens."""
        if n_tokens in self.traced:
            return self.traced[n_tokens]
        weights = {n: self._weight(n, n_tokens) for n in self.traced}
        last = self.traced[max(self.traced)]
        phases = {
            phase: {
                kind: max(round(sum(w * self._size(n, phase, kind) for n, w in weights.items())), 0)
                for kind in kinds
            }
            for phase, kinds in last.phases.items()
        }
        peak_at = max(phases, key=lambda phase: sum(phases[phase].values()))
        return replace(
            last,
            parts={kind: size for kind, size in phases[peak_at].items() if size},
            peak_bytes=sum(phases[peak_at].values()),
            peak_at=peak_at,
            phases=phases,
        )

    def largest(self, budget: int) -> int:
        """The most tokens whose peak ``budget`` bytes hold; 0 where none fits."""
        low, high = 0, _MOST_TOKENS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._peak(middle) <= budget else (low, middle)
        return low

    def _peak(self, n_tokens: int) -> int:
        return self.at(n_tokens).peak_bytes

    def _weight(self, node: int, n_tokens: int) -> float:
        """Lagrange's: 1 at the node and 0 at the others."""
        weight = 1.0
        for other in self.traced:
            if other != node:
                weight *= (n_tokens - other) / (node - other)
        return weight

    def _size(self, node: int, phase: str, kind: str) -> int:
        return self.traced[node].phases[phase].get(kind, 0)
