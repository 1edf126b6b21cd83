"""Other libraries on trees: transformers' Trainer and TRL's GRPO as the guide writes them, DPO."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, PreTrainedModel, Trainer, TrainingArguments

import kernels
from kernels.model import PRESETS, resolve_config
from tests.kernels.layouts import VOCABULARY, awkward_rows

torch.set_num_threads(1)

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "training-on-trees.md"


def example(containing: str) -> str:
    """The one block of the guide with these words."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


def plain_model() -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(resolve_config("tiny"))


def groups(n_groups: int = 4, size: int = 4) -> list[dict[str, list[int]]]:
    """Groups of rows that share a prompt, which is not trained."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(n_groups):
        prompt = rng.integers(1, VOCABULARY, int(rng.integers(5, 20))).tolist()
        for _ in range(size):
            answer = rng.integers(1, VOCABULARY, int(rng.integers(1, 12))).tolist()
            rows.append({"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer})
    return rows


def padded(features: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    longest = max(len(row["input_ids"]) for row in features)

    def tensor(values: Callable[[dict[str, list[int]]], list[int]], fill: int) -> Tensor:
        return torch.tensor([(v := values(r)) + [fill] * (longest - len(v)) for r in features])

    return {
        "input_ids": tensor(lambda row: row["input_ids"], 0),
        "attention_mask": tensor(lambda row: [1] * len(row["input_ids"]), 0),
        "labels": tensor(lambda row: row["labels"], -100),
    }


class RowTrainer(Trainer):
    """Padded rows and transformers' own attention; the mean over trained tokens."""

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Tensor:
        labels = inputs.pop("labels")[:, 1:].flatten()
        return functional.cross_entropy(model(**inputs).logits[:, :-1].flatten(0, 1), labels)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_guide_trains_qwen3_as_rows_do(tmp_path: Path) -> None:
    assert PRESETS["tiny"]["model_type"] == "qwen3"
    model = plain_model()
    model.save_pretrained(tmp_path / "model")
    rows = groups()
    seen: dict[str, Any] = {
        "name": str(tmp_path / "model"), "folder": str(tmp_path / "out"), "rows": rows
    }  # fmt: skip
    exec(example("class TreeTrainer"), seen)
    arguments: TrainingArguments = seen["arguments"]
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    RowTrainer(model, arguments, data_collator=padded, train_dataset=rows).train()
    trained = dict(seen["model"].named_parameters())
    for name, parameter in model.named_parameters():
        moved = (parameter - start[name]).abs().max()
        apart = (parameter - trained[name]).abs().max()
        assert moved > 1e-3 and apart < 1e-2 * moved, name


def test_a_batch_has_every_field_a_predicted_token() -> None:
    rows = [
        {"input_ids": [5, 6, 7], "labels": [-100, 6, 7], "advantage": 0.5, "old": [0.0, 1.0, 2.0]},
        {"input_ids": [5, 6], "labels": [-100, 6], "advantage": -1.0, "old": [0.0, 3.0]},
        {"input_ids": [9], "labels": [9], "advantage": 2.0, "old": [4.0]},
    ]
    batch = kernels.TreeCollator(multiple=4)(rows)
    assert batch["input_ids"].shape == batch["position_ids"].shape == (1, 4)
    assert batch["espalier_tree"].mask.n_real == 4
    assert batch["labels"].tolist() == [6, 7, 6]
    assert batch["advantage"].tolist() == [0.5, 0.5, -1.0]
    assert batch["old"].tolist() == [1.0, 2.0, 3.0]
    rows[1]["old"] = [0.0]
    with pytest.raises(ValueError, match=r"old has shape \(1,\) in a row of 2 tokens"):
        kernels.TreeCollator()(rows)


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_padded_rows_keep_their_places_and_get_their_own_values(side: str) -> None:
    rows = awkward_rows()
    width = rows.longest + 3
    ids, mask = torch.zeros(2, len(rows), width, dtype=torch.int64)
    rng = np.random.default_rng(0)
    for row in range(len(rows)):
        free = width - len(rows[row])
        at = {"left": free, "right": 0, "both": int(rng.integers(0, free + 1))}[side]
        ids[row, at : at + len(rows[row])] = torch.from_numpy(rows[row].astype(np.int64))
        mask[row, at : at + len(rows[row])] = 1
    model = plain_model()
    expected, entropies = torch.zeros(2, len(rows), width - 1)
    for row in range(len(rows)):
        at = int(mask[row].argmax())
        n = len(rows[row])
        if n > 1:
            logits = model(ids[row, at : at + n][None]).logits[0, :-1] / 0.7
            every = torch.log_softmax(logits, -1)
            chosen = every.gather(1, ids[row, at + 1 : at + n, None])[:, 0]
            expected[row, at : at + n - 1] = chosen.detach()
            entropies[row, at : at + n - 1] = -(every.exp() * every).sum(-1).detach()
    kernels.use_trees(model)
    found = kernels.padded_logprobs(model, ids, mask, temperature=0.7, entropy=True)
    torch.testing.assert_close(found[0], expected, rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(found[1], entropies, rtol=1e-5, atol=2e-5)


@pytest.mark.filterwarnings("ignore")  # TRL's own, of many kinds
def test_trl_has_its_own_grpo_loss_on_a_tree(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    seen: dict[str, Any] = {}
    exec(example("class TreeGRPOTrainer"), seen)
    rng = np.random.default_rng(1)
    prompts = torch.from_numpy(np.repeat(rng.integers(1, VOCABULARY, (2, 9)), 4, axis=0))
    prompt_mask = torch.ones_like(prompts)
    prompt_mask[:4, :3] = 0  # padded on the left
    completions = torch.from_numpy(rng.integers(1, VOCABULARY, (8, 7)))
    completion_mask = (torch.arange(7) < torch.arange(1, 9)[:, None]).long()
    inputs = {
        "prompt_ids": prompts,
        "prompt_mask": prompt_mask,
        "completion_ids": completions,
        "completion_mask": completion_mask,
        "advantages": torch.linspace(-1, 1, 8),
        "old_per_token_logps": torch.full((8, 7), -7.0),
        "num_items_in_batch": completion_mask.sum(),
    }
    results = []
    for trainer_class in (trl.GRPOTrainer, seen["TreeGRPOTrainer"]):
        model = plain_model()
        trainer = trainer_class(
            model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=trl.GRPOConfig(
                str(tmp_path), per_device_train_batch_size=8, num_generations=4, report_to=[],
                use_cpu=True, bf16=False, gradient_checkpointing=False, temperature=0.8,
            ),
            train_dataset=Dataset.from_list([{"prompt": "a"}] * 8),
            processing_class=tokenizer(),
        )  # fmt: skip
        if trainer_class is not trl.GRPOTrainer:
            kernels.use_trees(model)
        model.train()
        trainer.current_gradient_accumulation_steps = 1
        loss = trainer._compute_loss(model, dict(inputs))
        loss.backward()
        results.append((loss.detach(), gradients_of(model)))
    (rows_loss, rows), (tree_loss, tree) = results
    torch.testing.assert_close(tree_loss, rows_loss, rtol=1e-4, atol=1e-5)
    for name, gradient in rows.items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(tree[name], gradient, rtol=0, atol=1e-4 * scale)


def gradients_of(model: PreTrainedModel) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"a": 0, "<pad>": 1, "<eos>": 2}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def test_preferences_on_a_tree_are_those_of_rows() -> None:
    rows = groups(n_groups=3, size=3)  # of each prompt one chosen answer, and two rejected ones
    pairs = torch.tensor([(3 * g, 3 * g + other) for g in range(3) for other in (1, 2)])
    reference = torch.linspace(-60, -40, len(rows))
    sums, gradients = [], []
    for on_tree in (False, True):
        model = plain_model()
        if on_tree:
            batch = kernels.TreeCollator()(rows)
            labels, transitions = batch.pop("labels"), batch.pop("transitions")
            hidden = kernels.use_trees(model).base_model(**batch, use_cache=False)
            head = model.get_output_embeddings().weight
            packed = kernels.head_logprobs(hidden.last_hidden_state[0], head, transitions)
            row_logp = packed.row_sums((labels != -100).float(), len(rows))
        else:
            given = padded(rows)
            labels = given.pop("labels")[:, 1:]
            every = model(**given).logits[:, :-1].log_softmax(-1)
            chosen = every.gather(2, labels.clamp_min(0)[..., None])[..., 0]
            row_logp = (chosen * (labels != -100)).sum(1)
        if on_tree:
            loss = kernels.dpo_loss(row_logp, reference, pairs[:, 0], pairs[:, 1], beta=0.1)
        else:
            gain = row_logp - reference
            margins = [gain[a] - gain[b] for a, b in pairs.tolist()]
            loss = -torch.stack([(0.1 * m).sigmoid().log() for m in margins]).mean()
        loss.backward()
        sums.append((row_logp.detach(), loss.detach()))
        gradients.append(gradients_of(model))
    torch.testing.assert_close(sums[1], sums[0], rtol=1e-5, atol=1e-4)
    for name, gradient in gradients[0].items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(gradients[1][name], gradient, rtol=0, atol=2e-5 * scale)
