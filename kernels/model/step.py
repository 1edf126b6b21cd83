"""One training step over one rank's share of a batch: as trees, as flat rows, or padded.

Notable:
- the three modes differ only in their micro-batches; model, loss and normalisation are the same,
  so their gradients are equal
- logits are made for predicted tokens only, in every mode
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kernels.model.logprobs import CHUNK_SIZE
from kernels.model.losses import Normalisation, policy_loss, sft_loss, token_weights
from kernels.model.micro_batches import Inputs, MicroBatch, batch_mask, token_index
from kernels.model.model import TreeLM
from kernels.model.optimizer import StepOptimizer
from kernels.timing import PhaseClock, synchronize
from packing.rows import Rows

Floats = npt.NDArray[np.float32]

_LONG_S = 20.0
_MOST_REPEATS = 5


class StepOutOfMemory(RuntimeError):
    """Memory ran out; ``phase`` and ``micro_batch`` (from 0) say where."""

    def __init__(self, phase: str, micro_batch: int, reason: str) -> None:
        super().__init__(f"out of memory in {phase} of micro-batch {micro_batch}: {reason}")
        self.phase = phase
        self.micro_batch = micro_batch


@dataclass(frozen=True, eq=False)
class StepData:
    """What the loss reads, one float32 value per token of ``rows`` (first tokens unused)."""

    rows: Rows
    old_logp: Floats
    advantages: Floats
    weights: Floats

    @classmethod
    def of(
        cls,
        rows: Rows,
        old_logp: npt.ArrayLike,
        advantages: npt.ArrayLike,
        normalisation: Normalisation = "token-mean",
    ) -> StepData:
        """Checked data; raises ValueError where a length is not one value per token."""
        arrays = [np.asarray(a, dtype=np.float32) for a in (old_logp, advantages)]
        for name, array in zip(("old_logp", "advantages"), arrays, strict=True):
            if array.shape != (rows.n_tokens,):
                raise ValueError(f"{name} has shape {array.shape}; it needs ({rows.n_tokens},)")
        return cls(rows, arrays[0], arrays[1], token_weights(rows, normalisation))


@dataclass(frozen=True)
class StepOptions:
    """objective: the clipped policy loss, or cross entropy; chunk_size: parents per head chunk."""

    objective: Literal["policy", "sft"] = "policy"
    clip: float = 0.2
    chunk_size: int = CHUNK_SIZE
    backend: str = "auto"


@dataclass(frozen=True)
class MicroBatchResult:
    """Counts, seconds, and on CUDA the peak bytes since the micro-batch began (else None)."""

    tokens: int
    padded_tokens: int
    predicted: int
    inputs_s: float
    mask_s: float
    forward_s: float
    backward_s: float
    peak_allocated: int | None
    peak_reserved: int | None


@dataclass(frozen=True)
class StepResult:
    """A whole step; ``total_s`` is its wall time with the device idle before and after."""

    loss: float
    micro_batches: tuple[MicroBatchResult, ...]
    optimizer_s: float
    total_s: float


@dataclass(frozen=True, eq=False)
class LogpResult:
    """``logp`` float32, one value per token of the rows; 0 at first tokens and unfed rows."""

    logp: Floats
    micro_batches: tuple[MicroBatchResult, ...]
    total_s: float


def accumulate_gradients(
    model: TreeLM,
    batches: Sequence[MicroBatch],
    data: StepData,
    options: StepOptions = StepOptions(),
) -> tuple[float, tuple[MicroBatchResult, ...]]:
    """Forward, loss and backward of every micro-batch, into ``.grad``; the loss of the whole batch.

    Raises StepOutOfMemory.
    """
    device = next(model.parameters()).device
    total = torch.zeros((), device=device)
    runs = []
    for number, batch in enumerate(batches):
        run = _Run(model, batch, number, options, device)
        logp = run.forward()
        with run.phase("forward"):
            index = token_index(data.rows, batch.layout)
            old, advantages, weights = (
                torch.as_tensor(a[index], device=device)
                for a in (data.old_logp, data.advantages, data.weights)
            )
            if options.objective == "policy":
                loss = policy_loss(logp, old, advantages, weights, options.clip)
            else:
                loss = sft_loss(logp, weights)
        with run.phase("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
        runs.append(run.close())
        del logp, loss, run
    return float(total), tuple(result() for result in runs)


def train_step(
    model: TreeLM,
    optimizer: StepOptimizer,
    batches: Sequence[MicroBatch],
    data: StepData,
    options: StepOptions = StepOptions(),
) -> StepResult:
    """All micro-batches, then one optimizer step; gradients are cleared first."""
    device = next(model.parameters()).device
    wall = PhaseClock("cpu")
    synchronize(device)
    with wall.phase("total"):
        optimizer.zero_grad(set_to_none=True)
        loss, results = accumulate_gradients(model, batches, data, options)
        clock = PhaseClock(device)
        with out_of_memory_at("the optimizer", len(batches) - 1), clock.phase("optimizer"):
            optimizer.step()
        synchronize(device)
    return StepResult(loss, results, clock.seconds()["optimizer"], wall.seconds()["total"])


def compute_logp(
    model: TreeLM,
    batches: Sequence[MicroBatch],
    rows: Rows,
    options: StepOptions = StepOptions(),
) -> LogpResult:
    """The forward-only pass that gives old log-probabilities; the model's mode is kept."""
    device = next(model.parameters()).device
    logp = np.zeros(rows.n_tokens, dtype=np.float32)
    training = model.training
    wall = PhaseClock("cpu")
    runs, outputs = [], []
    try:
        model.eval()
        synchronize(device)
        with wall.phase("total"), torch.no_grad():
            for number, batch in enumerate(batches):
                run = _Run(model, batch, number, options, device)
                outputs.append((token_index(rows, batch.layout), run.forward()))
                runs.append(run.close())
            for index, values in outputs:
                logp[index] = values.float().cpu().numpy()
    finally:
        model.train(training)
    return LogpResult(logp, tuple(result() for result in runs), wall.seconds()["total"])


def repeats_within(once_s: float, repeat_s: float) -> int:
    """How often what took ``once_s`` seconds is timed in ``repeat_s``.

    At most five times, at least twice, or once where it takes more than 20 s.
    """
    least = 1 if once_s > _LONG_S else 2
    return int(np.clip(repeat_s / max(once_s, 1e-9) - 0.5, least, _MOST_REPEATS))


class _Run:
    """One micro-batch under way: its phases timed, its memory watched."""

    def __init__(
        self,
        model: TreeLM,
        batch: MicroBatch,
        number: int,
        options: StepOptions,
        device: torch.device,
    ) -> None:
        self._model, self._batch, self._number = model, batch, number
        self._options, self._device = options, device
        self._clock = PhaseClock(device)
        self._predicted = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        with out_of_memory_at(name, self._number), self._clock.phase(name):
            yield

    def forward(self) -> Tensor:
        """Log-probabilities of the batch's rows, mask made just before they need it."""
        with self.phase("inputs"):
            inputs = Inputs.of(self._batch, self._device, self._options.chunk_size)
        self._predicted = len(inputs.transitions.row_index)
        with self.phase("mask"):
            mask = batch_mask(self._batch, self._device)
        with self.phase("forward"):
            packed = self._model(
                inputs.input_ids,
                inputs.position_ids,
                mask,
                inputs.transitions,
                self._options.backend,
            )
            logp: Tensor = packed.rows()
        return logp

    def close(self) -> Callable[[], MicroBatchResult]:
        """Peaks are read now; times when the result is called for, after the whole step."""
        cuda = self._device.type == "cuda"
        allocated = torch.cuda.max_memory_allocated(self._device) if cuda else None
        reserved = torch.cuda.max_memory_reserved(self._device) if cuda else None
        clock, batch, predicted = self._clock, self._batch, self._predicted

        def result() -> MicroBatchResult:
            spent = clock.seconds()
            return MicroBatchResult(
                tokens=batch.layout.n_tokens,
                padded_tokens=batch.padded_tokens,
                predicted=predicted,
                inputs_s=spent["inputs"],
                mask_s=spent["mask"],
                forward_s=spent["forward"],
                backward_s=spent.get("backward", 0.0),
                peak_allocated=allocated,
                peak_reserved=reserved,
            )

        return result


@contextmanager
def out_of_memory_at(phase: str, micro_batch: int) -> Iterator[None]:
    """Out of memory in any of its forms, with the place where it happened."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise StepOutOfMemory(phase, micro_batch, str(error)) from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        raise StepOutOfMemory(phase, micro_batch, str(error)) from error
