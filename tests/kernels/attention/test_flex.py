"""FlexAttention: its BlockMask from intervals is the one of the matrix; forward on a CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch.nn.attention.flex_attention import BlockMask

from kernels.attention import TreeMask, tree_block_mask
from kernels.attention.flex import CPU_MAX_TOKENS, flex_attention_tree, flex_unavailable
from tests.kernels.forests import (
    forests,
    inputs,
    prompt_groups,
    random_forest,
    reference,
    relative_error,
    visible,
)


def classes_of(block_mask: BlockMask) -> np.ndarray:
    """0 empty, 1 partial, 2 full, read from the lists by query block and checked by key block."""
    assert block_mask.q_indices is not None and block_mask.q_num_blocks is not None
    assert block_mask.full_kv_indices is not None and block_mask.full_kv_num_blocks is not None
    assert block_mask.full_q_indices is not None and block_mask.full_q_num_blocks is not None
    lists = (
        (block_mask.kv_num_blocks, block_mask.kv_indices, 1),
        (block_mask.full_kv_num_blocks, block_mask.full_kv_indices, 2),
    )
    by_query = np.zeros(block_mask.kv_indices.shape[-2:], dtype=int)
    for counts, indices, label in lists:
        for row, (count, columns) in enumerate(zip(counts[0, 0], indices[0, 0], strict=True)):
            by_query[row, columns[:count].numpy()] = label
    by_key = np.zeros_like(by_query)
    for counts, indices, label in (
        (block_mask.q_num_blocks, block_mask.q_indices, 1),
        (block_mask.full_q_num_blocks, block_mask.full_q_indices, 2),
    ):
        for column, (count, rows) in enumerate(zip(counts[0, 0], indices[0, 0], strict=True)):
            by_key[rows[:count].numpy(), column] = label
    np.testing.assert_array_equal(by_query, by_key)
    return by_query


def expected_classes(seen: np.ndarray, block: int) -> np.ndarray:
    tiles = -(-len(seen) // block)
    out = np.zeros((tiles, tiles), dtype=int)
    for i, j in np.ndindex(tiles, tiles):
        cell = seen[i * block : (i + 1) * block, j * block : (j + 1) * block]
        out[i, j] = 2 if cell.all() else int(cell.any())
    return out


@given(forests(max_nodes=20, max_tokens=40))
@settings(deadline=None, max_examples=60)
def test_block_lists_and_mask_function_are_those_of_the_matrix(end: np.ndarray) -> None:
    seen, n = visible(end), len(end)
    block_mask = tree_block_mask(TreeMask.from_subtree_end(end), block_size=16)
    assert block_mask.shape == (1, 1, n, n)
    np.testing.assert_array_equal(classes_of(block_mask), expected_classes(seen, 16))
    zero, token = torch.tensor(0), torch.arange(n)
    cells = block_mask.mask_mod(zero, zero, token[:, None], token[None])
    np.testing.assert_array_equal(cells.numpy(), seen)


@pytest.mark.parametrize("heads", [(4, 4), (4, 1)])
def test_forward_on_a_cpu(heads: tuple[int, int]) -> None:
    for end in (
        random_forest(np.random.default_rng(0), 30, 20, padding=7),
        prompt_groups(2, 3, 50, 30),
    ):
        x = inputs(len(end), q_heads=heads[0], kv_heads=heads[1])
        mask = TreeMask.from_subtree_end(end)
        with torch.no_grad():
            out = flex_attention_tree(x.q, x.k, x.v, mask, 0.25)
        assert relative_error(out, reference(x, end, 0.25).out) < 1e-5


def test_it_says_why_it_cannot_run() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert flex_unavailable(cpu, torch.float32, 64, 100, False) is None
    assert "no backward" in (flex_unavailable(cpu, torch.float32, 64, 100, True) or "")
    long = flex_unavailable(cpu, torch.float32, 64, CPU_MAX_TOKENS + 1, False)
    assert str(CPU_MAX_TOKENS + 1) in (long or "")
    assert flex_unavailable(cuda, torch.bfloat16, 64, 100_000, True) is None
    assert "not float64" in (flex_unavailable(cuda, torch.float64, 64, 100, True) or "")
    assert "not 8" in (flex_unavailable(cuda, torch.bfloat16, 8, 100, True) or "")
    assert "not on mps" in (
        flex_unavailable(torch.device("mps"), torch.float32, 64, 9, False) or ""
    )
