"""What several ranks run together: a job as a JSON file, and the micro-batches of one rank.

Notable:
- a job says of every rank what each of its micro-batches holds, dummies among them: nothing is
  packed here, and ranks make the same collective calls
- trees are found in the true token ids; the model reads them folded into its own vocabulary where
  the job says so
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kernels.model import CHUNK_SIZE, DType, MicroBatch, row_layout
from packing.layout import TreeLayout, depth_first_layout
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import forest_of


class JobError(ValueError):
    """A job file cannot be used; the message names the field and the mend."""


@dataclass(frozen=True)
class RankPiece:
    """One micro-batch: its row numbers (none: a dummy), and the tokens that it is padded to."""

    rows: tuple[int, ...]
    padded_to: int


Pieces = tuple[tuple[RankPiece, ...], ...]
"""Of every rank its micro-batches."""


@dataclass(frozen=True)
class RankJob:
    """What all ranks run.

    rows:      an ``.npz`` beside the job file, or an absolute path: ``tokens`` int32, ``offsets``
               int64, optional ``group`` and ``loss_mask``, and per token ``old_logp`` and
               ``advantages`` float32
    updates:   the micro-batches of every PPO minibatch; each ends in an optimizer step
    logp:      those of ``compute_logp``, timed before each step; empty: it is not run
    mode:      whether a micro-batch is one tree, or rows one after the other
    device:    "cuda" (NCCL, a GPU a rank) or "cpu" (Gloo)
    fold:      token ids are taken modulo the model's vocabulary
    repeats:   timed steps after one that warms up; 0: as many as ``repeat_s`` seconds allow
    memory_budget: bytes that one rank may use; 0: what there is
    """

    model: str
    rows: str
    updates: tuple[Pieces, ...]
    logp: Pieces = ()
    mode: Literal["tree", "rows"] = "tree"
    device: Literal["cuda", "cpu"] = "cpu"
    dtype: DType = "float32"
    optimizer_dtype: DType = "float32"
    gradient_checkpointing: bool = False
    head_chunk: int = CHUNK_SIZE
    vocab_at_least: int = 0
    fold: bool = False
    repeats: int = 0
    repeat_s: float = 60.0
    memory_budget: int = 0

    @classmethod
    def read(cls, path: Path) -> RankJob:
        """Raises JobError where the file is not a job."""
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise JobError(f"the job {path} cannot be read: {error}") from error
        known = {f.name for f in fields(cls)}
        if not isinstance(content, Mapping) or not content.keys() <= known:
            raise JobError(f"the job {path} must be an object with fields among {sorted(known)}")
        try:
            taken = dict(content)
            taken["updates"] = tuple(_pieces(update) for update in taken["updates"])
            taken["logp"] = _pieces(taken.get("logp", ()))
            taken["rows"] = str(path.parent / taken["rows"])
            return cls(**taken)
        except (KeyError, TypeError, ValueError) as error:
            raise JobError(f"the job {path} lacks a field or has a wrong one: {error}") from error

    def write(self, path: Path) -> None:
        """As ``read`` takes it."""
        path.write_text(json.dumps(asdict(self)))

    @property
    def ranks(self) -> set[int]:
        """For how many ranks each pass has micro-batches; one number where the job is sound."""
        return {len(ranks) for ranks in (*self.updates, self.logp) if ranks}

    def load(self) -> tuple[Rows, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Rows, old log-probabilities and advantages."""
        with np.load(self.rows, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        missing = {"tokens", "offsets", "old_logp", "advantages"} - arrays.keys()
        if missing:
            raise JobError(f"{self.rows} lacks {', '.join(sorted(missing))}")
        group = arrays.get("group", np.arange(len(arrays["offsets"]) - 1))
        rows = Rows(
            arrays["tokens"].astype(np.int32),
            arrays["offsets"].astype(np.int64),
            group.astype(np.int32),
            arrays.get("loss_mask"),
        )
        return rows, arrays["old_logp"], arrays["advantages"]


def _pieces(ranks: Sequence[Sequence[Mapping[str, Any]]]) -> Pieces:
    return tuple(
        tuple(RankPiece(tuple(map(int, one["rows"])), int(one["padded_to"])) for one in rank)
        for rank in ranks
    )


def save_rows(
    path: Path,
    rows: Rows,
    old_logp: np.ndarray[Any, Any],
    advantages: np.ndarray[Any, Any],
) -> None:
    """What ``RankJob.load`` reads."""
    mask = {} if rows.loss_mask is None else {"loss_mask": rows.loss_mask}
    np.savez(
        path,
        allow_pickle=False,
        tokens=rows.tokens,
        offsets=rows.offsets,
        group=rows.group,
        old_logp=old_logp,
        advantages=advantages,
        **mask,
    )


@dataclass(frozen=True, eq=False)
class RankBatches:
    """A rank's micro-batches; ``rows`` are what the model reads."""

    rows: Rows
    updates: tuple[tuple[MicroBatch, ...], ...]
    logp: tuple[MicroBatch, ...]

    @classmethod
    def of(cls, job: RankJob, rows: Rows, rank: int, vocabulary: int) -> RankBatches:
        """Raises JobError where ranks have different numbers of micro-batches."""
        for ranks in (*job.updates, job.logp):
            if len({len(pieces) for pieces in ranks}) > 1:
                raise JobError("every rank needs as many micro-batches; add dummies (no rows)")
        read = rows
        if job.fold:
            tokens = (rows.tokens % vocabulary).astype(np.int32)
            read = Rows(tokens, rows.offsets, rows.group, rows.loss_mask)
        order = PrefixOrder.of(rows) if job.mode == "tree" else None
        updates = tuple(_batches(read, order, update[rank]) for update in job.updates)
        logp = _batches(read, order, job.logp[rank]) if job.logp else ()
        return cls(read, updates, logp)


def _batches(
    rows: Rows, order: PrefixOrder | None, pieces: Sequence[RankPiece]
) -> tuple[MicroBatch, ...]:
    if order is None:
        layouts = [row_layout(rows, piece.rows) for piece in pieces]
    else:
        trees = iter(_trees(rows, order, [piece.rows for piece in pieces if piece.rows]))
        layouts = [next(trees) if piece.rows else row_layout(rows, []) for piece in pieces]
    return tuple(
        MicroBatch(layout, piece.padded_to) for layout, piece in zip(layouts, pieces, strict=True)
    )


def _trees(rows: Rows, order: PrefixOrder, members: Sequence[tuple[int, ...]]) -> list[TreeLayout]:
    forest = forest_of(order, members)
    return [depth_first_layout(rows, forest.tree(tree)) for tree in range(len(forest))]
