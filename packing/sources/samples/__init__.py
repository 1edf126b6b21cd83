"""Bundled data sets: synthetic rollouts, made from a seed, in the shapes that real logs have.

Notable:
- nothing is stored: records are generated when asked for, the same on every machine
- *math-grpo* shares prompts and openings, *agent-turns* shares a long policy, *preference-pairs*
  shares next to nothing, so that tree packing wins, wins much, and loses
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from packing.sources.samples.agent import agent_records
from packing.sources.samples.math import math_records
from packing.sources.samples.pairs import pair_records

SEED = 20250618


@dataclass(frozen=True)
class Sample:
    """A bundled data set; ``synthetic`` is shown wherever its numbers appear."""

    name: str
    title: str
    description: str
    make: Callable[[int], list[dict[str, Any]]]
    synthetic: bool = True


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
                math_records,
            ),
            Sample(
                "agent-turns",
                "A customer service agent with tools",
                "12 tasks of an online shop, tried four times each by an agent with a long policy "
                "and 13 tools. Every assistant turn has its reasoning; templates that drop the "
                "reasoning of earlier turns make the turns of one conversation branch. Synthetic: "
                "played by a seeded simulation.",
                agent_records,
            ),
            Sample(
                "preference-pairs",
                "Chosen and rejected answers",
                "120 short everyday questions, each with a chosen and a rejected answer that "
                "differ from the first word on. There is almost nothing to share, so tree packing "
                "should not pay here. Synthetic: written by a seeded grammar.",
                pair_records,
            ),
        )
    }
)


def sample_records(name: str) -> list[dict[str, Any]]:
    """The records of a bundled data set, made anew from the seed on each call.

    - ``math-grpo``: ``problem_id, prompt, completions, rewards, answer``
    - ``agent-turns``: ``task_id, trial, messages, tools, reward``
    - ``preference-pairs``: ``prompt, chosen, rejected``

    Raises KeyError with a sentence where there is no such set.
    """
    if name not in SAMPLES:
        raise KeyError(f"There is no bundled data set {name!r}; choose one of {', '.join(SAMPLES)}")
    return SAMPLES[name].make(SEED)
