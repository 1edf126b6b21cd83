"""Proof on real rows: a packed step gives the log-probabilities and gradients of rows run alone.

Notable:
- the reference shares nothing with the packed path but the weights: each row by itself through
  transformers' own attention, its own head and ``log_softmax``
- the loss weighs every transition of every row by its own random number, so that no two errors
  cancel and a lost or doubled transition shows in the gradients
- errors are relative: of a log-probability to ``max(1, |reference|)``, of a layer's gradient to the
  largest entry of the reference gradient of that layer
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from kernels.model.micro_batches import Inputs, MicroBatch, batch_mask, token_index
from kernels.model.model import TreeLM
from packing.layout import TreeLayout
from packing.rows import Rows

# Largest relative error taken as rounding: (log-probabilities, gradients). A 28-layer Qwen3 with
# random weights showed (2e-7, 2e-6) in fp32 and (2e-3, 3e-2) in bf16; fp16 rounds 8 times finer.
# In half precision a fault smaller than rounding stays hidden: prove layouts in fp32.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float32: (1e-5, 1e-5),
    torch.float16: (2e-3, 1e-2),
    torch.bfloat16: (1e-2, 8e-2),
}


@dataclass(frozen=True)
class LogprobError:
    """Relative errors of log-probabilities, and where the largest is."""

    maximum: float
    mean: float
    row: int
    token: int


@dataclass(frozen=True)
class LayerError:
    """Relative errors of the gradient of one layer's parameters."""

    layer: str
    maximum: float
    mean: float
    parameter: str


@dataclass(frozen=True)
class Equivalence:
    """The outcome over ``trees`` trees, ``rows`` rows and ``transitions`` predictions."""

    trees: int
    rows: int
    transitions: int
    dtype: str
    backend: str
    logprobs: LogprobError
    layers: tuple[LayerError, ...]
    logprob_tolerance: float
    gradient_tolerance: float

    @property
    def worst_layer(self) -> LayerError:
        return max(self.layers, key=lambda layer: _infinite_if_nan(layer.maximum))

    @property
    def equal(self) -> bool:
        """Both errors within tolerance; NaN is not."""
        return (
            self.logprobs.maximum <= self.logprob_tolerance
            and self.worst_layer.maximum <= self.gradient_tolerance
        )

    @property
    def verdict(self) -> str:
        """One or two sentences for people."""
        scope = f"{self.transitions:,} predictions of {self.rows:,} rows in {self.trees} trees"
        lp, layer = self.logprobs, self.worst_layer
        errors = (
            f"log-probabilities differ by at most {lp.maximum:.1e} (tolerance "
            f"{self.logprob_tolerance:.0e}), gradients by at most {layer.maximum:.1e} (tolerance "
            f"{self.gradient_tolerance:.0e}), relative, in {self.dtype}"
        )
        if self.equal:
            return f"Packed equals row by row over {scope}: {errors}."
        return (
            f"Packed does not equal row by row over {scope}: {errors}. The largest errors are at "
            f"token {lp.token} of row {lp.row} and in {layer.parameter} ({layer.layer})."
        )


def check_equivalence(
    model: TreeLM,
    rows: Rows,
    layouts: Sequence[TreeLayout],
    *,
    backend: str = "auto",
    padded_tokens: int = 0,
    seed: int = 0,
) -> Equivalence:
    """Compare one packed step with the same rows one by one; ``.grad`` is left cleared.

    layouts:       depth-first, of trees of ``rows``; see ``sample_trees`` for a few of many
    padded_tokens: pad every tree to this, as a training step would (0: no padding)
    Costs a forward and backward of every token of every row and two copies of the gradients.
    Raises ValueError where no row has two tokens.
    """
    predicted = [token_index(rows, layout) for layout in layouts]
    index = np.concatenate(predicted) if predicted else np.empty(0, dtype=np.int64)
    if not len(index):
        raise ValueError("nothing to compare: no row of these trees has two tokens")
    weights = np.zeros(rows.n_tokens, dtype=np.float32)
    weights[index] = np.random.default_rng(seed).standard_normal(len(index)) / len(index)

    packed = np.zeros(rows.n_tokens)
    model.zero_grad(set_to_none=True)
    for layout, at in zip(layouts, predicted, strict=True):
        size = max(padded_tokens, layout.n_tokens, 1)
        packed[at] = _packed_step(model, MicroBatch(layout, size), weights[at], backend)
    packed_gradients = _take_gradients(model)

    members = np.concatenate([layout.rows for layout in layouts])
    alone = np.zeros(rows.n_tokens)
    for row in members[rows.lengths[members] > 1].tolist():
        start, end = rows.offsets[row] + 1, rows.offsets[row + 1]
        alone[start:end] = _row_step(model, rows[row], weights[start:end])
    alone_gradients = _take_gradients(model)

    parameter = next(model.parameters())
    logprob_tolerance, gradient_tolerance = TOLERANCES[parameter.dtype]
    return Equivalence(
        trees=len(layouts),
        rows=len(members),
        transitions=len(index),
        dtype=str(parameter.dtype).removeprefix("torch."),
        backend=backend,
        logprobs=_logprob_error(rows, packed, alone, index),
        layers=_layer_errors(packed_gradients, alone_gradients),
        logprob_tolerance=logprob_tolerance,
        gradient_tolerance=gradient_tolerance,
    )


def sample_trees(layouts: Sequence[TreeLayout], trees: int, seed: int = 0) -> list[TreeLayout]:
    """At most ``trees`` layouts, the one with the most rows among them, in their order."""
    filled = [i for i, layout in enumerate(layouts) if layout.n_tokens]
    if len(filled) > trees:
        fullest = max(filled, key=lambda i: len(layouts[i].rows))
        others = [i for i in filled if i != fullest]
        drawn = np.random.default_rng(seed).choice(others, trees - 1, replace=False)
        filled = sorted([fullest, *drawn.tolist()])
    return [layouts[i] for i in filled]


def _packed_step(model: TreeLM, batch: MicroBatch, weights: np.ndarray, backend: str) -> np.ndarray:
    device = next(model.parameters()).device
    inputs = Inputs.of(batch, device)
    mask = batch_mask(batch, device)
    out = model(inputs.input_ids, inputs.position_ids, mask, inputs.transitions, backend)
    logp: Tensor = out.rows()
    (logp * torch.as_tensor(weights, device=device)).sum().backward()  # type: ignore[no-untyped-call]
    return logp.detach().double().cpu().numpy()


def _row_step(model: TreeLM, tokens: np.ndarray, weights: np.ndarray) -> np.ndarray:
    device = next(model.parameters()).device
    ids = torch.tensor(tokens, dtype=torch.int64, device=device)
    with model.plain_attention() as lm:
        logits = lm(input_ids=ids[None], use_cache=False).logits[0, :-1]
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logp = functional.log_softmax(wide, dim=-1).gather(1, ids[1:, None])[:, 0]
        loss = (logp * torch.as_tensor(weights, device=device)).sum()
        loss.backward()  # type: ignore[no-untyped-call]
    return logp.detach().double().cpu().numpy()


def _take_gradients(model: TreeLM) -> dict[str, Tensor]:
    gradients = {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in model.lm.named_parameters()
        if p.requires_grad
    }
    model.zero_grad(set_to_none=True)
    return gradients


def _logprob_error(
    rows: Rows, packed: np.ndarray, alone: np.ndarray, index: np.ndarray
) -> LogprobError:
    error = np.abs(packed[index] - alone[index]) / np.maximum(1.0, np.abs(alone[index]))
    worst = int(index[np.argmax(np.where(np.isnan(error), np.inf, error))])
    row = int(np.searchsorted(rows.offsets, worst, side="right") - 1)
    return LogprobError(
        float(error.max()), float(error.mean()), row, worst - int(rows.offsets[row])
    )


def _layer_errors(packed: dict[str, Tensor], alone: dict[str, Tensor]) -> tuple[LayerError, ...]:
    by_layer: dict[str, list[str]] = {}
    for name in packed:
        found = re.search(r"(?:layers|h|blocks)\.(\d+)\.", name)
        by_layer.setdefault(f"layer {found[1]}" if found else name, []).append(name)
    errors = []
    for layer, names in by_layer.items():
        scale = max(float(alone[name].abs().max()) for name in names) or 1.0
        differences = {n: (packed[n].double() - alone[n].double()).abs() / scale for n in names}
        maxima = {n: float(d.max()) for n, d in differences.items()}
        total = sum(float(d.sum()) for d in differences.values())
        worst = max(maxima, key=lambda n: _infinite_if_nan(maxima[n]))
        count = sum(d.numel() for d in differences.values())
        errors.append(LayerError(layer, maxima[worst], total / count, worst))
    return tuple(errors)


def _infinite_if_nan(value: float) -> float:
    return float("inf") if np.isnan(value) else value
