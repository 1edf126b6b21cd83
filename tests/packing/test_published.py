"""Published figures of sharing, counted by our packer; docs/said-and-counted.md lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from packing.batch.pipeline import as_they_stand
from packing.batch.spec import BatchSpec
from packing.prefixes import PrefixOrder
from packing.rows import Rows

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "said-and-counted.md"


@dataclass
class Tokens:
    """Token ids that nobody else has."""

    used: int = 0

    def __call__(self, count: int) -> list[int]:
        self.used += count
        return list(range(self.used - count, self.used))


def grouped(samples: int, prompt: int, answer: int) -> Rows:
    """One prompt and its answers."""
    new = Tokens()
    shared = new(prompt)
    return Rows.from_lists([shared + new(answer) for _ in range(samples)], [0] * samples)


def branching(depth: int, branch: int, segment: int) -> Rows:
    """Every path of a tree that parts ``branch`` ways after each segment, in depth-first order."""
    new = Tokens()
    paths = [new(segment)]
    for _ in range(depth - 1):
        paths = [path + new(segment) for path in paths for _ in range(branch)]
    return Rows.from_lists(paths, [0] * len(paths))


def tree_tokens(rows: Rows, rows_a_micro_batch: int = 0) -> float:
    """Tokens of the trees over those of the rows, in micro-batches of so many rows."""
    size = rows_a_micro_batch or len(rows)
    found = 0
    for first in range(0, len(rows), size):
        part = rows.take(list(range(first, min(first + size, len(rows)))))
        spec = BatchSpec(128 * (part.n_tokens // 128 + 1))
        found += as_they_stand(part, PrefixOrder.of(part)).packed(spec).tree_tokens
    return found / rows.n_tokens


def said() -> dict[str, str]:
    """The last column of the table, by its first two."""
    lines = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", DOCUMENT.read_text(), re.M)
    return {f"{source} {shape}": counted for source, shape, _, counted in lines[1:]}


def test_a_binary_tree_of_depth_16_in_micro_batches_of_4_rows() -> None:
    """verl#6401, set B: four neighbouring paths part twice, 14 + 2 + 4 of 4 x 16 segments are run.

    What is above the first branching of interest is one path here: 2**10 leaves instead of 2**15.
    """
    rows = branching(11, 2, 6)
    lead = Tokens(10**6)(5 * 6)  # the five segments above, one path of them
    rows = Rows.from_lists([lead + row for row in as_lists(rows)], [0] * len(rows))
    share = 1 - tree_tokens(rows, 4)
    assert share == pytest.approx(0.6875)
    assert "68.75 %" in said()["verl#6401 set B, depth 16, branch 2, 4 rows a micro-batch"]


@pytest.mark.parametrize(("prompt", "ratio"), [(512, 0.4167), (1024, 0.3), (4096, 0.1765)], ids=str)
def test_a_group_of_eight_over_its_rows_one_by_one(prompt: int, ratio: float) -> None:
    """unsloth#6871: (P + G R) / (G (P + R)), G 8, R 256."""
    counted = tree_tokens(grouped(8, prompt, 256))
    assert counted == pytest.approx((prompt + 8 * 256) / (8 * (prompt + 256)))
    assert round(counted, 4) == ratio
    assert said()[f"unsloth#6871 G 8, R 256, P {prompt}"] == f"{counted:.4f}"


@pytest.mark.parametrize(("parts", "factor"), [(2, 0.857), (4, 0.571)], ids=str)
def test_what_is_left_of_the_saving_where_a_group_is_split(parts: int, factor: float) -> None:
    """Relax#67: (n - m) / (n - 1) of the saving of n rows in m micro-batches."""
    rows = grouped(8, 300, 40)
    whole, split = (1 - tree_tokens(rows, size) for size in (8, 8 // parts))
    assert split / whole == pytest.approx((8 - parts) / 7)
    assert round(split / whole, 3) == factor
    assert said()[f"Relax#67 n 8, m {parts}"] == f"{split / whole:.3f}"


def test_the_ratio_that_ten_times_fewer_tokens_take() -> None:
    """AReaL's "up to 10x": a token ratio of 0.1, which 8 samples a prompt cannot reach."""
    at_best = tree_tokens(grouped(8, 10**5, 10))
    assert at_best == pytest.approx(1 / 8, rel=1e-2) and at_best > 0.1
    assert said()["AReaL tree_training.md “reduces overall FLOPs by up to 10×”"].startswith("0.1")


def as_lists(rows: Rows) -> list[list[int]]:
    return [rows.tokens[a:b].tolist() for a, b in zip(rows.offsets, rows.offsets[1:], strict=False)]
