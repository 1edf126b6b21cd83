"""The plugin's pieces, with a few lines in AReaL's place: tests/areal runs them in its engine."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
import types
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.integrations.areal.logprobs import (
    gather_logprobs_entropy,
    gather_row_logprobs,
    gather_vocab_stats,
)
from kernels.integrations.areal.minibatches import group_minibatches
from kernels.integrations.areal.model import fuse_head
from kernels.integrations.areal.options import option
from kernels.integrations.areal.patch import UnknownAReaL, patch
from kernels.integrations.areal.trees import build_packed_tree_batch, build_tree_attn_kwargs
from kernels.model import UnsupportedModel, build_model, use_trees
from packing.spec import MicroBatchSpec
from tests.packing.strategies import any_rows

ROOT = Path(__file__).resolve().parents[2]
torch.set_num_threads(1)


def plain_gather(
    logits: Tensor, labels: Tensor, temperature: float = 1.0, **_: Any
) -> tuple[Tensor, Tensor]:
    """AReaL's ``gather_logprobs_entropy``, in its plainest form."""
    log_p = torch.log_softmax(logits.float() / temperature, dim=-1)
    return log_p.gather(-1, labels[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)


@dataclass
class StandInList:
    """The fields of AReaL's ``MicroBatchList`` that its engine reads."""

    data: Any
    mb_spec: Any
    mbs: list[dict[str, Any]]
    padded_mbs: list[dict[str, Any]]
    group_lens: list[int]
    padding_lengths: list[int]
    padded_to_lengths: list[int]
    _max_seqlen: int


@pytest.fixture(autouse=True, scope="module")
def areal() -> Any:
    """What the pieces import of AReaL."""
    modules = {name: types.ModuleType(name) for name in ("areal", "areal.utils")}
    utils: Any = modules["areal.utils"]
    utils.stats_tracker = types.SimpleNamespace(scalar=lambda **scalars: None)
    utils.functional = types.SimpleNamespace(
        gather_logprobs=lambda *a, **k: plain_gather(*a, **k)[0],
        gather_logprobs_entropy=plain_gather,
    )
    utils.logging = logging
    modules["areal.version"] = types.ModuleType("areal.version")
    modules["areal.version"].__version__ = "9.9"  # type: ignore[attr-defined]
    data: Any = types.ModuleType("areal.utils.data")
    data.MicroBatchList = StandInList
    with pytest.MonkeyPatch.context() as patch:
        for name, module in (modules | {"areal.utils.data": data}).items():
            patch.setitem(sys.modules, name, module)
        yield


def padded(rows: list[list[int]], left: bool = False) -> dict[str, Any]:
    """A batch of rollouts, padded on one side, with a field per token and one per row."""
    shape = (len(rows), max(map(len, rows)))
    ids, mask = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.bool)
    field = torch.full(shape, -1.0)
    for i, row in enumerate(rows):
        at = slice(shape[1] - len(row), None) if left else slice(0, len(row))
        ids[i, at], mask[i, at] = torch.tensor(row, dtype=torch.int64), True
        field[i, at] = torch.arange(len(row)) + 100.0 * i
    rewards = torch.arange(len(rows))
    return {"input_ids": ids, "attention_mask": mask, "field": field, "rewards": rewards}


ROWS = [[5, 6, 7, 8], [5, 6, 7, 8], [5, 6, 9], [5, 6], [1], [2, 3, 4, 4, 4], [5, 6, 7, 8, 1, 1]]


@settings(deadline=None, max_examples=60)
@given(rows=any_rows.filter(any), left=st.booleans())
def test_trees_hold_every_row_and_its_fields(rows: list[list[int]], left: bool) -> None:
    data = padded(rows, left)
    trees = build_packed_tree_batch(data, MicroBatchSpec(max_tokens_per_mb=128))
    seen = []
    for mb, tokens, padding in zip(trees.mbs, trees.group_lens, trees.padding_lengths, strict=True):
        tree = mb["trie_node"]
        assert mb["input_ids"].shape == mb["position_ids"].shape == (1, 128)
        assert tokens + padding == 128 and mb["rewards"] is data["rewards"]
        fields = torch.split(mb["field"], tree.lengths)
        for index, (row, field) in enumerate(zip(tree.all_sequence_ids, fields, strict=True)):
            at = torch.as_tensor(tree.layout.positions_of(index)).long()
            assert mb["input_ids"][0, at].tolist() == rows[row]
            assert mb["position_ids"][0, at].tolist() == list(range(len(rows[row])))
            assert field.tolist() == [100.0 * row + i for i in range(len(rows[row]))]
            seen.append(row)
    assert sorted(seen) == [i for i, row in enumerate(rows) if row]


@pytest.mark.parametrize("packer", ["areal", "prefix-aware"])
@pytest.mark.parametrize(
    ("spec", "fields", "words"),
    [
        (MicroBatchSpec(), {}, "must be a positive value"),
        (MicroBatchSpec(max_tokens_per_mb=100), {}, "must be a multiple of 128"),
        (MicroBatchSpec(max_tokens_per_mb=128), {"parallel_size": 3}, "multiple of 384"),
        (MicroBatchSpec(max_tokens_per_mb=128), {"pad_to_maximum": False}, "No padding"),
        (MicroBatchSpec(max_tokens_per_mb=128), {}, "Sequence length 130 exceeds"),
    ],
)
def test_refusals(
    monkeypatch: pytest.MonkeyPatch, packer: str, spec: MicroBatchSpec, fields: Any, words: str
) -> None:
    monkeypatch.setenv("ESPALIER_AREAL_PACKER", packer)
    with pytest.raises(ValueError, match=words):
        build_packed_tree_batch(padded([[1] * 130]), spec, **fields)


def test_an_unknown_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert option("HEAD") == "fused"
    monkeypatch.setenv("ESPALIER_AREAL_HEAD", "fusedd")
    with pytest.raises(ValueError, match="ESPALIER_AREAL_HEAD is fused or logits, not 'fusedd'"):
        option("HEAD")


def run_engine(fused: bool, temperature: float) -> tuple[Any, dict[str, Any]]:
    """What AReaL's engine does with one tree: values of every row, and gradients of a loss."""
    lm = build_model("tiny", vocab_at_least=16).lm
    use_trees(lm)
    if fused:
        fuse_head(lm, temperature)
    (mb,) = build_packed_tree_batch(padded(ROWS), MicroBatchSpec(max_tokens_per_mb=128)).mbs
    tree = mb["trie_node"]
    inputs = {"input_ids": mb["input_ids"], "position_ids": mb["position_ids"]}
    out = lm(**inputs, **build_tree_attn_kwargs(tree, 128, torch.device("cpu")))
    logits = out.logits.squeeze(0)
    logp, entropy = gather_logprobs_entropy(logits, tree, mb["input_ids"], temperature)
    extrema = gather_vocab_stats(logits, tree)
    rows = gather_row_logprobs(logits, tree, mb["input_ids"], temperature)
    assert torch.equal(torch.cat([rows[i] for i in tree.all_sequence_ids]), logp)
    weights = torch.linspace(-1, 1, len(logp))
    (weights * logp).sum().backward()
    return (tree, logp, entropy, *extrema), {n: p.grad for n, p in lm.named_parameters()}


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_fused_head_and_logits_give_what_rows_alone_give(temperature: float) -> None:
    results = [run_engine(fused, temperature) for fused in (False, True)]
    plain = build_model("tiny", vocab_at_least=16)
    lengths = [len(row) for row in ROWS]
    for (tree, *values), _ in results:
        by_row = [torch.split(value, tree.lengths) for value in values]
        for index, row in enumerate(tree.all_sequence_ids):
            ids = torch.tensor([ROWS[row]])
            with plain.plain_attention() as lm, torch.no_grad():
                logits = lm(input_ids=ids, use_cache=False).logits[0]
            logp, entropy, low, high = (values[index] for values in by_row)
            n = lengths[row] - 1
            own, dispersion = plain_gather(logits[:n], ids[0, 1:], temperature)
            torch.testing.assert_close(logp[:n], own, rtol=0, atol=1e-5)
            torch.testing.assert_close(entropy[:n], dispersion, rtol=0, atol=1e-5)
            torch.testing.assert_close(low, logits.amin(-1), rtol=0, atol=1e-5)
            torch.testing.assert_close(high, logits.amax(-1), rtol=0, atol=1e-5)
            assert logp[n] == entropy[n] == 0
    (_, by_logits), (_, by_head) = results
    for name, gradient in by_logits.items():
        torch.testing.assert_close(by_head[name], gradient, rtol=1e-4, atol=1e-6)


def test_a_dummy_tree_reaches_every_weight_and_moves_none() -> None:
    lm = build_model("tiny", vocab_at_least=16).lm
    use_trees(lm)
    fuse_head(lm, 1.0)
    (mb,) = build_packed_tree_batch(padded([[1, 2]]), MicroBatchSpec(max_tokens_per_mb=128)).mbs
    tree = mb["trie_node"]
    tree.layout = type(tree.layout)(
        *(np.empty(0, np.int32) for _ in range(4)),
        np.empty(0, np.int64),
        np.empty(0, np.int32),
        np.zeros(1, np.int64),
    )
    tree.subtree_end = np.zeros(128, np.int32)
    kwargs = build_tree_attn_kwargs(tree, 128, torch.device("cpu"))
    out = lm(input_ids=mb["input_ids"], position_ids=mb["position_ids"], **kwargs)
    assert gather_row_logprobs(out.logits[0], tree, mb["input_ids"]) == {}
    (out.logits.mean() * 0.0).backward()
    for name, parameter in lm.named_parameters():
        assert parameter.grad is not None and not parameter.grad.any(), name


def test_a_layer_that_does_not_attend_is_refused() -> None:
    lm: Any = build_model("tiny", vocab_at_least=16).lm
    use_trees(lm)
    attention = lm.model.layers[1].self_attn
    attention.forward = lambda hidden_states, **_: (torch.zeros_like(hidden_states), None)
    (mb,) = build_packed_tree_batch(padded(ROWS), MicroBatchSpec(max_tokens_per_mb=128)).mbs
    kwargs = build_tree_attn_kwargs(mb["trie_node"], 128, torch.device("cpu"))
    with pytest.raises(UnsupportedModel, match=r"layer 1 did not attend through the tree \(1 of"):
        lm(input_ids=mb["input_ids"], position_ids=mb["position_ids"], **kwargs)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    n=st.integers(1, 6),
    data=st.data(),
)
def test_group_minibatches_keep_groups_whole(sizes: list[int], n: int, data: Any) -> None:
    total = sum(sizes)
    lengths = data.draw(st.lists(st.integers(1, 50), min_size=total, max_size=total))
    if len(sizes) < n:
        with pytest.raises(RuntimeError, match="Number of values"):
            group_minibatches(lengths, sizes, n)
        return
    parts = group_minibatches(lengths, sizes, n)
    assert len(parts) == n and sorted(chain(*parts)) == list(range(total))
    group = np.repeat(np.arange(len(sizes)), sizes)
    owners = [set(group[part].tolist()) for part in parts]
    assert sum(map(len, owners)) == len(sizes)  # no group is in two
    counts = [len(owner) for owner in owners]
    assert max(counts) - min(counts) <= 1
    assert all(part == sorted(part) for part in parts)


# AReaL's modules as far as the plugin looks at them.
ENGINE = """
from areal.utils import logging
def build_packed_tree_batch(data, mb_spec, pad_to_maximum=True, dp_group=None, parallel_size=1): ...
def build_tree_attn_kwargs(trie, padded_size, device, dense_mask=False): ...
def _gather_packed_tree_logprobs(
    logits, trie, input_ids, temperature=1.0, chunk_size=1024, tp_group=None): ...
def gather_packed_tree_logprobs_entropy(
    logits, trie, input_ids, temperature=1.0, chunk_size=1024, tp_group=None): ...
def gather_packed_tree_vocab_stats(logits, trie): ...
def patch_fsdp_for_tree_training(enable=True): ...
class FSDPEngine:
    def initialize(self):
        self._create_device_model(); patch_fsdp_for_tree_training(True)
    def _create_device_model(self): ...
    def _prepare_mb_list(self): build_packed_tree_batch(1, 2)
    def forward_backward_batch(self): build_tree_attn_kwargs(1, 2, 3)
    def _compute_forward_result(self): _gather_packed_tree_logprobs(1, 2, 3)
    def _compute_logprobs_and_loss(self):
        gather_packed_tree_vocab_stats(1, 2); gather_packed_tree_logprobs_entropy(1, 2, 3)
"""
FILES = {
    "__init__.py": "",
    "version.py": "__version__ = '9.9'",
    "utils/__init__.py": "import logging",
    "engine/__init__.py": "",
    "engine/fsdp_utils/__init__.py": "",
    "engine/fsdp_utils/attn_impl.py": "BUILTIN_ATTN_IMPLS = ('sdpa',)",
    "engine/fsdp_engine.py": ENGINE,
}
LOOK = """
import sys
assert "torch" not in sys.modules
from areal.engine.fsdp_utils.attn_impl import BUILTIN_ATTN_IMPLS
import areal.engine.fsdp_engine as engine
print(BUILTIN_ATTN_IMPLS, engine.build_packed_tree_batch.__module__)
"""


@pytest.mark.process
def test_the_hook_patches_what_is_imported(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / "areal" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "areal" / name).write_text(text)
    said = [
        subprocess.run(
            [sys.executable, "-c", f"{hook}\n{LOOK}"],
            cwd=ROOT,
            env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""},
            capture_output=True,
            text=True,
        ).stdout.strip()
        for hook in ("import kernels.integrations.areal.hook", "")
    ]
    assert said[0] == "('sdpa', 'espalier_tree') kernels.integrations.areal.trees"
    assert said[1] == "('sdpa',) areal.engine.fsdp_engine"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("_vocab_stats(logits, trie)", "_vocab_stats(logits, tree)", "takes (logits tree), not"),
        ("def _create_device_model", "def _create_model", "has no FSDPEngine._create_device_model"),
        ("(self): build_tree_attn_kwargs(1, 2, 3)", "(self): ...", "does not call build_tree_attn"),
    ],
)
def test_another_areal_is_refused_before_anything_is_replaced(
    tmp_path: Path, old: str, new: str, what: str
) -> None:
    assert old in ENGINE
    file = tmp_path / "fsdp_engine.py"
    file.write_text(ENGINE.replace(old, new))
    spec = importlib.util.spec_from_file_location("areal.engine.fsdp_engine", file)
    assert spec and spec.loader
    engine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(engine)
    before = dict(vars(engine))
    with pytest.raises(UnknownAReaL, match="does not fit AReaL 9") as no:
        patch(engine)
    assert what in str(no.value) and "Nothing was replaced" in str(no.value)
    assert vars(engine) == before
