"""A step as trees, as flat rows or padded: the same loss and gradients, honestly counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kernels.model import (
    MicroBatch,
    Normalisation,
    StepData,
    StepOptions,
    StepOutOfMemory,
    TreeLM,
    accumulate_gradients,
    adamw,
    build_model,
    compute_logp,
    flat_batches,
    padded_batches,
    row_layout,
    train_step,
    tree_batches,
)
from kernels.timing import PhaseClock, Timing, measure
from packing.layout import areal_layout
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.trie import whole_trie
from tests.kernels.layouts import awkward_rows, one_tree, trees

torch.set_num_threads(1)

MEMBERS = [[0, 9, 3], [1, 2, 4, 8], [5, 6, 7, 10]]
FILLED = [members if 10 not in members else members[:-1] for members in MEMBERS]


def masked_rows() -> Rows:
    rows = awkward_rows()
    mask = np.random.default_rng(1).integers(0, 2, rows.n_tokens).astype(np.uint8)
    return Rows(rows.tokens, rows.offsets, rows.group, mask)


def batches_of(rows: Rows) -> dict[str, list[MicroBatch]]:
    return {
        "trees": tree_batches(trees(rows, FILLED), 64),
        "one tree": tree_batches([one_tree(rows)], 128),
        "flat": flat_batches(rows, MEMBERS, multiple=32),
        "padded": padded_batches(rows, MEMBERS, rows.longest),
        "rows": flat_batches(rows, [[i] for i in range(len(rows))]),
    }


def data_of(rows: Rows, model: TreeLM, normalisation: Normalisation = "token-mean") -> StepData:
    rng = np.random.default_rng(2)
    old = compute_logp(model, flat_batches(rows, [range(len(rows))]), rows).logp
    moved = old + rng.normal(0, 0.3, rows.n_tokens)  # so that ratios leave the clip range
    return StepData.of(rows, moved, rng.normal(size=rows.n_tokens), normalisation)


def gradients(model: TreeLM) -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def plain_loss(model: TreeLM, data: StepData, options: StepOptions) -> torch.Tensor:
    """The loss written out row by row, token by token, on transformers' own logits."""
    rows, total = data.rows, torch.zeros(())
    with model.plain_attention() as lm:
        for i in range(len(rows)):
            if len(rows[i]) < 2:
                continue
            ids = torch.tensor(rows[i], dtype=torch.int64)
            log_p = torch.log_softmax(lm(input_ids=ids[None], use_cache=False).logits[0], dim=-1)
            for t in range(1, len(ids)):
                at = int(rows.offsets[i]) + t
                lp = log_p[t - 1, ids[t]]
                if options.objective == "sft":
                    gain = lp
                else:
                    a, ratio = float(data.advantages[at]), (lp - float(data.old_logp[at])).exp()
                    low, high = 1 - options.clip, 1 + options.clip
                    gain = torch.minimum(ratio * a, ratio.clamp(low, high) * a)
                total = total - float(data.weights[at]) * gain
        total.backward()
    return total.detach()


@pytest.fixture(scope="module")
def tiny() -> TreeLM:
    return build_model("tiny")


@pytest.mark.parametrize("normalisation", ["token-mean", "sequence-mean"])
@pytest.mark.parametrize("objective", ["policy", "sft"])
def test_every_mode_has_the_loss_and_gradients_of_rows_one_by_one(
    tiny: TreeLM, objective: Any, normalisation: Normalisation
) -> None:
    rows = masked_rows()
    data = data_of(rows, tiny, normalisation)
    options = StepOptions(objective=objective)
    tiny.zero_grad(set_to_none=True)
    expected_loss = plain_loss(tiny, data, options)
    expected = gradients(tiny)
    assert max(float(g.abs().max()) for g in expected.values()) > 1e-3
    for mode, batches in batches_of(rows).items():
        tiny.zero_grad(set_to_none=True)
        loss, _ = accumulate_gradients(tiny, batches, data, options)
        assert loss == pytest.approx(float(expected_loss), rel=1e-5), mode
        found = gradients(tiny)
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            scale = float(gradient.abs().max())
            torch.testing.assert_close(
                found[name], gradient, rtol=0, atol=1e-5 * scale, msg=f"{mode}: {name}"
            )
    tiny.zero_grad(set_to_none=True)


def test_logp_pass_is_the_same_in_every_mode_and_keeps_the_models_mode(tiny: TreeLM) -> None:
    rows = awkward_rows()
    results = {mode: compute_logp(tiny, b, rows) for mode, b in batches_of(rows).items()}
    reference = results["rows"].logp
    assert (reference[rows.offsets[:-1][rows.lengths > 0]] == 0).all()
    assert np.count_nonzero(reference) == int(np.maximum(rows.lengths - 1, 0).sum())
    for mode, result in results.items():
        np.testing.assert_allclose(result.logp, reference, rtol=1e-5, atol=1e-6, err_msg=mode)
        assert all(m.backward_s == 0 and m.forward_s > 0 for m in result.micro_batches)
    assert tiny.training
    assert all(p.grad is None for p in tiny.parameters())


def test_counts_are_those_of_the_micro_batches(tiny: TreeLM) -> None:
    rows = awkward_rows()
    data = data_of(rows, tiny)
    batches = batches_of(rows)
    counts = {}
    for mode, chosen in batches.items():
        _, results = accumulate_gradients(tiny, chosen, data)
        counts[mode] = [(m.tokens, m.padded_tokens) for m in results]
        assert sum(m.predicted for m in results) == int(np.maximum(rows.lengths - 1, 0).sum())
        assert all(m.inputs_s > 0 and m.mask_s > 0 and m.backward_s > 0 for m in results)
        assert all(m.peak_allocated is None for m in results), "no CUDA here, so no CUDA peak"
    lengths = [rows.lengths[members] for members in MEMBERS]
    assert counts["flat"] == [(n.sum(), -(-n.sum() // 32) * 32) for n in lengths]
    assert counts["padded"] == [(n.sum(), len(n) * rows.longest) for n in lengths]
    order = PrefixOrder.of(rows)
    expected = [(order.tree_tokens(np.array(members)), 64) for members in FILLED]
    assert counts["trees"] == expected
    tiny.zero_grad(set_to_none=True)


def test_a_dummy_tree_costs_a_pass_and_changes_nothing(tiny: TreeLM) -> None:
    rows = awkward_rows()
    data = data_of(rows, tiny)
    dummy = one_tree(Rows.from_lists([[]]))
    tiny.zero_grad(set_to_none=True)
    loss, _ = accumulate_gradients(tiny, tree_batches([one_tree(rows)], 128), data)
    before = gradients(tiny)
    tiny.zero_grad(set_to_none=True)
    again, results = accumulate_gradients(tiny, tree_batches([one_tree(rows), dummy], 128), data)
    assert again == loss
    assert (results[1].tokens, results[1].padded_tokens) == (0, 128)
    assert results[1].forward_s > 0 and results[1].backward_s > 0
    for name, gradient in gradients(tiny).items():
        assert torch.equal(gradient, before[name]), name
    tiny.zero_grad(set_to_none=True)
    only_dummy, _ = accumulate_gradients(tiny, tree_batches([dummy], 128), data)
    assert only_dummy == 0.0
    zero = gradients(tiny)
    assert zero.keys() == before.keys(), "every parameter takes part, as ranks in step need"
    assert all(torch.count_nonzero(g) == 0 for g in zero.values())


def test_steps_train() -> None:
    rows = awkward_rows()
    model = build_model("tiny")
    data = StepData.of(rows, np.zeros(rows.n_tokens), np.ones(rows.n_tokens))
    optimizer = adamw(model, lr=3e-3)
    options = StepOptions(objective="sft")
    batches = tree_batches([one_tree(rows)], 128)
    results = [train_step(model, optimizer, batches, data, options) for _ in range(8)]
    assert results[-1].loss < results[0].loss - 1.0
    last = results[-1]
    parts = last.micro_batches[0]
    spent = parts.inputs_s + parts.mask_s + parts.forward_s + parts.backward_s + last.optimizer_s
    assert 0 < spent <= last.total_s


def test_checkpointing_and_head_chunks_give_the_same_step(tiny: TreeLM) -> None:
    rows = awkward_rows()
    data = data_of(rows, tiny)
    batches = tree_batches([one_tree(rows)], 128)
    tiny.zero_grad(set_to_none=True)
    accumulate_gradients(tiny, batches, data)
    expected = gradients(tiny)
    model = build_model("tiny", gradient_checkpointing=True)
    accumulate_gradients(model, batches, data, StepOptions(chunk_size=5))
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-7)
    tiny.zero_grad(set_to_none=True)


def test_master_copies_keep_updates_that_half_precision_rounds_away() -> None:
    def trained(dtype: torch.dtype | None) -> float:
        model = torch.nn.Linear(4, 4, bias=False, dtype=torch.bfloat16)
        torch.nn.init.ones_(model.weight)
        optimizer = adamw(model, lr=1e-4, dtype=dtype)
        for _ in range(60):
            optimizer.zero_grad()
            model.weight.grad = torch.ones_like(model.weight)
            optimizer.step()
        return float(model.weight.detach().mean())

    assert trained(None) == 1.0
    assert trained(torch.float32) == pytest.approx(1 - 60 * 1e-4, abs=4e-3)
    assert isinstance(adamw(torch.nn.Linear(2, 2), dtype=torch.float32), torch.optim.AdamW)


def test_layouts_that_a_step_cannot_take_are_refused() -> None:
    rows = awkward_rows()
    with pytest.raises(ValueError, match="max_tokens_per_mb must hold the largest tree"):
        tree_batches([one_tree(rows)], 20)
    with pytest.raises(ValueError, match="depth-first"):
        MicroBatch(areal_layout(rows, whole_trie(PrefixOrder.of(rows))), 512)
    with pytest.raises(ValueError, match=r"old_logp has shape \(3,\)"):
        StepData.of(rows, np.zeros(3), np.zeros(rows.n_tokens))


def test_flat_rows_share_nothing() -> None:
    rows = awkward_rows()
    layout = row_layout(rows, [3, 0, 10, 9])
    assert layout.n_tokens == int(rows.lengths[[3, 0, 9]].sum())
    assert layout.subtree_end is not None
    start = 0
    for row in (3, 0, 9):
        end = start + len(rows[row])
        np.testing.assert_array_equal(layout.input_ids[start:end], rows[row])
        np.testing.assert_array_equal(layout.position_ids[start:end], np.arange(end - start))
        assert layout.parent[start] == -1 and (layout.subtree_end[start:end] == end).all()
        start = end


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError("no memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"),
    ],
)
def test_out_of_memory_says_where(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    rows = awkward_rows()
    model = build_model("tiny")
    data = StepData.of(rows, np.zeros(rows.n_tokens), np.ones(rows.n_tokens))
    batches = flat_batches(rows, MEMBERS)
    calls = iter(range(10))
    original: Callable[..., Any] = model.lm.model.norm.forward

    def fails_on_third(x: torch.Tensor) -> Any:
        if next(calls) == 2:
            raise error
        return original(x)

    monkeypatch.setattr(model.lm.model.norm, "forward", fails_on_third)
    with pytest.raises(StepOutOfMemory, match="in forward of micro-batch 2") as caught:
        train_step(model, adamw(model), batches, data)
    assert (caught.value.phase, caught.value.micro_batch) == ("forward", 2)


def test_other_errors_are_not_called_out_of_memory(tiny: TreeLM) -> None:
    rows = awkward_rows()
    data = StepData.of(rows, np.zeros(rows.n_tokens), np.ones(rows.n_tokens))
    with pytest.raises(ValueError, match="there is no backend 'nothing'"):
        accumulate_gradients(tiny, flat_batches(rows, [[0]]), data, StepOptions(backend="nothing"))


def test_timers_count_what_they_ran() -> None:
    runs: list[int] = []
    timing = measure(lambda: runs.append(1), "cpu", repeats=4, warmup=2)
    assert len(runs) == 6 and len(timing.samples) == 4
    assert min(timing.samples) <= timing.p20_s <= timing.median_s <= timing.p80_s
    assert Timing((3.0, 1.0, 2.0, 4.0, 5.0)).median_s == 3.0
    assert Timing((3.0, 1.0, 2.0, 4.0, 5.0, 0.0)).p20_s == 1.0
    with pytest.raises(ValueError, match="at least one repeat"):
        measure(lambda: None, "cpu", repeats=0)

    clock = PhaseClock("cpu")
    for name in ("a", "b", "a"):
        with clock.phase(name):
            pass
    assert list(clock.seconds()) == ["a", "b"]
