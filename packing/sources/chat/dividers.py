"""Where a text can be cut without changing its tokens: beside special tokens.

Notable:
- asked of the tokenizer, not assumed: some strip the space beside a token, some begin every text
  with one
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

# Texts beside a special token that show whether a tokenizer keeps apart what it stands between.
BESIDE = ("a", " a", "a ", "\n", "a\n", "\n\na", "  ", "é", "1", ".", "▁", "<")


class Dividers:
    """Special tokens that a tokenizer never merges across.

    added:   texts of all tokens that are found before a text is cut into words
    special: texts of the special ones among them
    encode:  token ids of each text
    """

    def __init__(
        self,
        added: Sequence[str],
        special: frozenset[str],
        encode: Callable[[Sequence[str]], list[npt.NDArray[np.int32]]],
    ) -> None:
        self._added, self._encode = added, encode
        longest_first = "|".join(map(re.escape, sorted(special, key=len, reverse=True))) or "(?!)"
        self._start = re.compile(longest_first)
        self._end = re.compile(f"(?:{longest_first})\\Z")
        self._longest = max(map(len, special), default=0)
        self._known: dict[str, tuple[bool, bool]] = {}

    def between(self, before: str, after: str) -> bool:
        """Whether ``before + after`` has the tokens of each alone."""
        if not before or not after:
            return True
        found = self._start.match(after)
        if found and self._sides(found[0])[0]:
            return True
        found = self._end.search(before, max(0, len(before) - self._longest))
        return found is not None and self._sides(found[0])[1]

    def _sides(self, token: str) -> tuple[bool, bool]:
        """(whether text can be cut before it, after it)."""
        if token not in self._known:
            texts = [t for beside in BESIDE for t in (beside, beside + token, token + beside)]
            ids = [i.tolist() for i in self._encode([token, *texts])]
            own, rest = ids[0], ids[1:]
            alone, before, after = rest[::3], rest[1::3], rest[2::3]
            others = [a for a in self._added if a != token]
            over = any(_overlaps(a, token) for a in others)
            longer = any(a.startswith(token) for a in others)
            self._known[token] = (
                not over and all(b == a + own for a, b in zip(alone, before, strict=True)),
                not longer and all(b == own + a for a, b in zip(alone, after, strict=True)),
            )
        return self._known[token]


def _overlaps(other: str, token: str) -> bool:
    """Whether ``other`` can end inside of ``token``, having begun before it."""
    return any(other.endswith(token[:k]) for k in range(1, min(len(other), len(token) + 1)))
