"""One measured point: real training steps of a real model over one rank's share of a batch.

Notable:
- with several ranks the share is that of the rank that the others wait for, dummy trees included
- packing, masks, forward, backward and optimizer are timed apart and all count
- a step that does not fit is a result: it says where memory ran out, and has no speed
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
import torch

from kernels.mask import TreeMask
from kernels.micro_batches import MicroBatch, flat_batches, padded_batches, row_layout, tree_batches
from kernels.model import TreeLM, build_model
from kernels.optimizer import StepOptimizer, adamw
from kernels.step import StepData, StepOptions, StepOutOfMemory, StepResult, train_step
from packing.chain import Chain, Pass, RankPass
from packing.layout import depth_first_layout
from packing.packers.areal import RowTooLong, pack_areal
from packing.packers.flat import PaddedBatch
from packing.packers.prefix_aware import pack_prefix_aware
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import build_forest
from tuning.memory_watch import MemoryWatch
from tuning.plan import TuningPlan
from tuning.points import Mode, Point, Question
from tuning.workbench import Workbench, batch_plan

_TILE = 128


@dataclass(frozen=True, eq=False)
class Share:
    """What one rank runs in a step: per PPO minibatch its micro-batches, and what they hold."""

    minibatches: tuple[tuple[MicroBatch, ...], ...]
    tree_tokens: int
    n_trees: int

    @cached_property
    def features(self) -> dict[str, float]:
        """What a step's time depends on; see ``costmodel``."""
        batches = [b for minibatch in self.minibatches for b in minibatch]
        masks = [
            TreeMask.from_subtree_end(b.layout.subtree_end) for b in batches if b.layout.n_tokens
        ]
        return {
            "steps": float(len(self.minibatches)),
            "micro_batches": float(len(batches)),
            "padded_tokens": float(sum(b.padded_tokens for b in batches)),
            "visited_area": float(sum(m.visited_area(_TILE, _TILE) for m in masks)),
            "nodes": float(sum(len(m.nodes) for m in masks)),
            "row_tokens": float(sum(len(b.layout.row_positions) for b in batches)),
        }


class Bench:
    """A model, its optimizer and a batch on one device, ready to be timed."""

    def __init__(self, plan: TuningPlan, rows: Rows) -> None:
        self.plan = plan
        self.bench = Workbench(rows, PrefixOrder.of(rows))
        self.device = torch.device(plan.device)
        if self.device.type == "cpu":
            torch.set_num_threads(max(torch.get_num_threads(), 1))
        self.memory = MemoryWatch(self.device)
        vocabulary = int(rows.tokens.max(initial=0)) + 1
        self.model: TreeLM = build_model(
            plan.model,
            vocab_at_least=vocabulary,
            dtype=plan.dtype,
            device=plan.device,
            gradient_checkpointing=plan.gradient_checkpointing,
        )
        self.optimizer: StepOptimizer = adamw(
            self.model, dtype=getattr(torch, plan.optimizer_dtype)
        )
        random = np.random.default_rng(0)
        # Old log-probabilities near a random model's, advantages of both signs: an ordinary update.
        old = np.full(rows.n_tokens, -np.log(self.model.config.vocab_size), dtype=np.float32)
        advantage = np.repeat(random.standard_normal(len(rows)), rows.lengths)
        self.data = StepData.of(rows, old, advantage)

    def question(self, mode: Mode, cap: int) -> Question:
        return Question.of(
            self.plan,
            mode,
            cap,
            self.bench.rows.fingerprint,
            machine_name(self.device),
            torch.__version__,
        )

    def share(self, mode: Mode, cap: int) -> Share:
        """Raises RowTooLong, or ValueError and RuntimeError in AReaL's words."""
        chain = self.bench.chain(batch_plan(self.plan, cap))
        return share_of(self.bench.rows, self.bench.order, chain, mode, self.plan.packer)

    def measure(
        self,
        mode: Mode,
        cap: int,
        repeats: int = 3,
        progress: Callable[[int], None] = lambda repeat: None,
    ) -> Point:
        """Time ``repeats`` steps after one that is thrown away. ``progress`` hears each repeat."""
        question = self.question(mode, cap)
        measured_at = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            begun = time.perf_counter()
            share = self.share(mode, cap)
            packing_s = time.perf_counter() - begun
        except (RowTooLong, ValueError, RuntimeError) as error:
            return Point(question, "refused", message=str(error), measured_at=measured_at)
        counts = {
            "original_tokens": self.bench.rows.n_tokens,
            "tree_tokens": share.tree_tokens,
            "n_trees": share.n_trees,
            "padded_tokens": int(share.features["padded_tokens"]),
        }
        steps: list[tuple[StepResult, ...]] = []
        try:
            with self.memory.peak() as peak:
                for repeat in range(-1, repeats):
                    progress(repeat)
                    done = self._step(share)
                    if repeat >= 0:
                        steps.append(done)
        except StepOutOfMemory as error:
            self.optimizer.zero_grad(set_to_none=True)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            return Point(
                question,
                "out-of-memory",
                message=f"does not fit: {self.memory.needed()} at {error.phase} of micro-batch "
                f"{error.micro_batch + 1}",
                measured_at=measured_at,
                versions=versions(),
                features=share.features,
                **counts,
            )
        totals = [packing_s + sum(s.total_s for s in done) for done in steps]
        return Point(
            question,
            "measured",
            step_s=float(np.median(totals)),
            p20_s=float(np.percentile(totals, 20)),
            p80_s=float(np.percentile(totals, 80)),
            repeats=repeats,
            phases_s={"packing": packing_s} | _median_phases(steps),
            memory_bytes=peak.bytes,
            memory_kind=self.memory.kind,
            features=share.features,
            loss=steps[-1][-1].loss,
            measured_at=measured_at,
            versions=versions(),
            **counts,
        )

    def _step(self, share: Share) -> tuple[StepResult, ...]:
        options = StepOptions(chunk_size=self.plan.head_chunk)
        return tuple(
            train_step(self.model, self.optimizer, minibatch, self.data, options)
            for minibatch in share.minibatches
        )


def share_of(rows: Rows, order: PrefixOrder, chain: Chain, mode: Mode, packer: str) -> Share:
    """The micro-batches of the rank that the others wait for, minibatch by minibatch."""
    minibatches, tree_tokens, n_trees = [], 0, 0
    for update in chain.ppo_update:
        if mode == "tree":
            batches = _trees(rows, order, update, chain.plan.max_tokens_per_mb, packer)
            tree_tokens += sum(b.layout.n_tokens for b in batches)
            n_trees += len(batches)
        else:
            batches = _rows(rows, update, mode, chain.plan.max_tokens_per_mb)
        minibatches.append(tuple(batches))
    return Share(tuple(minibatches), tree_tokens, n_trees)


def _trees(rows: Rows, order: PrefixOrder, update: Pass, cap: int, packer: str) -> list[MicroBatch]:
    heaviest = max(update.ranks, key=lambda one: (one.n_trees, one.tree_tokens))
    pack = pack_areal if packer == "areal" else pack_prefix_aware
    forest = build_forest(order, pack(order, cap, heaviest.members))
    layouts = [depth_first_layout(rows, forest.tree(t)) for t in range(len(forest))]
    # Ours may need fewer trees than AReaL's; then no rank waits longer than for ours.
    waits = update.trees_per_rank if packer == "areal" else len(layouts)
    dummies = [row_layout(rows, [])] * (waits - len(layouts))
    return tree_batches([*layouts, *dummies], cap)


def _rows(rows: Rows, update: Pass, mode: Mode, cap: int) -> list[MicroBatch]:
    if mode == "padded":
        widest = max(update.ranks, key=lambda one: one.tokens)
        groups = PaddedBatch.of(rows.lengths[widest.members]).micro_batches(cap)
        return padded_batches(rows, [widest.members[g] for g in groups])
    if update.comparison.flat_error:
        raise RuntimeError(update.comparison.flat_error)
    fullest = max(update.ranks, key=_flat_tokens)
    baseline = fullest.baseline
    assert baseline is not None  # there is no error, so every rank has one
    batches = flat_batches(rows, [fullest.members[list(g)] for g in baseline.groups])
    return [
        MicroBatch(batch.layout, padded)
        for batch, padded in zip(batches, baseline.padded_to, strict=True)
    ]


def _flat_tokens(one: RankPass) -> int:
    return one.baseline.padded_tokens if one.baseline else 0


def _median_phases(steps: Sequence[tuple[StepResult, ...]]) -> dict[str, float]:
    phases: dict[str, list[float]] = {}
    for done in steps:
        batches = [b for s in done for b in s.micro_batches]
        for name in ("inputs", "mask", "forward", "backward"):
            phases.setdefault(name, []).append(sum(getattr(b, f"{name}_s") for b in batches))
        phases.setdefault("optimizer", []).append(sum(s.optimizer_s for s in done))
    return {name: float(np.median(values)) for name, values in phases.items()}


def machine_name(device: torch.device) -> str:
    """The device as a history should name it: GPU model, or processor and threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu {platform.machine()}, {torch.get_num_threads()} threads"


def versions() -> dict[str, str]:
    import transformers

    found = {"torch": torch.__version__, "transformers": transformers.__version__}
    try:
        import triton

        found["triton"] = triton.__version__
    except ImportError:
        pass
    return found
