"""Decoder layers and whole models compile as one graph for any number of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kernels.model import Inputs, MicroBatch, TreeLM, batch_mask, build_model, decoder_layers
from tests.kernels.layouts import awkward_rows, one_tree

torch.set_num_threads(1)

pytestmark = pytest.mark.filterwarnings(  # torch's own, while it compiles
    "ignore:.*torch.jit.*:DeprecationWarning", "ignore:.*not a leaf Tensor:UserWarning"
)


def step(model: TreeLM, seed: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Log-probabilities and gradients of a tree that is padded by ``seed`` tokens."""
    layout = one_tree(awkward_rows(seed))
    batch, cpu = MicroBatch(layout, layout.n_tokens + seed), torch.device("cpu")
    inputs = Inputs.of(batch, cpu)
    mask = batch_mask(batch, cpu)
    model.zero_grad(set_to_none=True)
    logp = model(inputs.input_ids, inputs.position_ids, mask, inputs.transitions).rows()
    weights = np.random.default_rng(seed).standard_normal(len(logp))
    (logp @ torch.from_numpy(weights).to(logp)).backward()
    return logp.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("compiler", "whole"),
    [
        ("eager", False),
        ("aot_eager", False),
        ("inductor", False),
        ("eager", True),
        ("aot_eager", True),
        pytest.param("inductor", True, marks=pytest.mark.deep),
    ],
)
def test_compiled_equals_eager_for_every_number_of_tokens(compiler: str, whole: bool) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    eager, compiled = build_model("tiny"), build_model("tiny")
    parts: list[Any] = [compiled.lm.base_model] if whole else [decoder_layers(compiled.lm)[1]]
    for part in parts:
        part.compile(backend=compiler, fullgraph=True, dynamic=True)
    for seed in range(3):
        (logp, gradients), (found, own) = step(eager, seed), step(compiled, seed)
        torch.testing.assert_close(found, logp, rtol=1e-5, atol=1e-5)
        assert own.keys() == gradients.keys()
        for name, gradient in gradients.items():
            scale = float(gradient.abs().max())
            torch.testing.assert_close(own[name], gradient, rtol=0, atol=1e-5 * scale)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == len(parts)
