"""Completions that nobody sampled: n per prompt with lengths of a chosen distribution.

Notable:
- made-up completions hold ids drawn from the prompts' own, so siblings share their prompt and,
  but for chance, nothing after it: real samples share at least as much
- whatever is computed from them is marked simulated
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packing.rows import Rows
from packing.sources.build import Built
from packing.sources.spec import Simulate

# Any id serves where every prompt is empty.
NO_PROMPT_IDS = np.arange(1000, dtype=np.int32)


def simulated_lengths(
    settings: Simulate, own: npt.NDArray[np.float64], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """int64 ``(prompts, samples)``: tokens of each completion, at least 1.

    own: float64 ``(prompts,)``, each prompt's own median for "column" and "answer"

    Lognormal: ``median * exp(sigma * N(0, 1))``. Percentiles: the inverse of the distribution
    function is linear between the pairs and flat beyond them.
    """
    shape = (len(own), settings.samples)
    if settings.lengths == "percentiles":
        levels, tokens = np.array(settings.percentiles, dtype=np.float64).T
        drawn = np.interp(100 * rng.random(shape), levels, tokens)
    else:
        median = np.full(len(own), settings.median) if settings.lengths == "lognormal" else own
        drawn = median[:, None] * np.exp(settings.sigma * rng.standard_normal(shape))
    limit = settings.max_new_tokens or 10_000_000
    cut: npt.NDArray[np.float64] = np.clip(np.rint(drawn), 1, limit)
    return cut.astype(np.int64)


def simulate(
    prompts: Rows, own: npt.NDArray[np.float64], settings: Simulate
) -> tuple[Rows, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(rows, prompt_lengths int64 ``(rows,)``, prompt of each row int64 ``(rows,)``).

    Rows are sample after sample of one prompt after another; each prompt is a group.
    """
    rng = np.random.default_rng(settings.seed)
    lengths = simulated_lengths(settings, own, rng).ravel()
    prompt = np.repeat(np.arange(len(prompts)), settings.samples)
    before = prompts.lengths[prompt]
    offsets = np.concatenate([[0], np.cumsum(before + lengths)]).astype(np.int64)
    pool = np.unique(prompts.tokens) if prompts.n_tokens else NO_PROMPT_IDS
    tokens = pool[rng.integers(0, len(pool), int(offsets[-1]))]
    mask = np.ones(len(tokens), dtype=np.uint8)
    for row, number in enumerate(prompt.tolist()):
        start = int(offsets[row])
        stop = start + int(before[row])
        tokens[start:stop] = prompts[number]
        mask[start:stop] = 0
    group = prompts.group[prompt]
    return Rows(tokens, offsets, group, mask, prompts.decoder), before, prompt


def simulated(built: Built, own: npt.NDArray[np.float64], settings: Simulate) -> Built:
    """Rows with made-up completions in the place of rows that are prompts alone."""
    rows, prompt_lengths, prompt = simulate(built.rows, own, settings)
    asked = int(prompt_lengths.sum())
    return Built(
        rows,
        prompt_lengths,
        rewards=None,
        records=built.records[prompt],
        flags=np.zeros(len(rows), dtype=np.uint16),
        origins=built.origins[prompt],
        role_tokens={"prompt": asked, "simulated": rows.n_tokens - asked},
    )
