"""Bundled data sets: synthetic rollouts in the shapes that real logs have.

Notable:
- each is a file of the assets, ``NAME.jsonl.zst``, pinned by its checksum: published figures rest
  on these records, so a changed byte must be meant
- *math-grpo* shares prompts and openings, *agent-turns* shares a long policy, *preference-pairs*
  shares next to nothing, so that tree packing wins, wins much, and loses
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Sample:
    """A bundled data set; ``synthetic`` is shown wherever its numbers appear."""

    name: str
    title: str
    description: str
    synthetic: bool = True

    @property
    def path(self) -> Path:
        """JSON Lines, compressed with zstandard; any loader of rows can read it too."""
        return ASSETS / f"{self.name}.jsonl.zst"


SAMPLES: Mapping[str, Sample] = MappingProxyType(
    {
        sample.name: sample
        for sample in (
            Sample(
                "math-grpo",
                "Word problems, eight answers each",
                "64 arithmetic word problems with eight sampled solutions each, right and wrong, "
                "as a GRPO run logs them. Siblings share their prompt and often the first steps; "
                "some solutions check and repeat themselves and get many times longer than the "
                "rest. Synthetic: written by a seeded grammar.",
            ),
            Sample(
                "agent-turns",
                "A customer service agent with tools",
                "12 tasks of an online shop, tried four times each by an agent with a long policy "
                "and 13 tools. Every assistant turn has its reasoning; templates that drop the "
                "reasoning of earlier turns make the turns of one conversation branch. Synthetic: "
                "played by a seeded simulation.",
            ),
            Sample(
                "preference-pairs",
                "Chosen and rejected answers",
                "120 short everyday questions, each with a chosen and a rejected answer that "
                "differ from the first word on. There is almost nothing to share, so tree packing "
                "should not pay here. Synthetic: written by a seeded grammar.",
            ),
        )
    }
)


def sample_records(name: str) -> list[dict[str, Any]]:
    """The records of a bundled data set.

    - ``math-grpo``: ``problem_id, prompt, completions, rewards, answer``
    - ``agent-turns``: ``task_id, trial, messages, tools, reward``
    - ``preference-pairs``: ``prompt, chosen, rejected``

    Raises KeyError with a sentence where there is no such set.
    """
    from zstandard import decompress

    if name not in SAMPLES:
        raise KeyError(f"There is no bundled data set {name!r}; choose one of {', '.join(SAMPLES)}")
    lines = decompress(SAMPLES[name].path.read_bytes()).splitlines()
    return [json.loads(line) for line in lines]
