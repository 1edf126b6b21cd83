"""Every family of causal models that transformers has: equal to rows on a tree, or refused."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from kernels.model import TreeLM, UnsupportedModel, check_config, check_equivalence
from tests.kernels.layouts import awkward_rows, one_tree

FAMILIES = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
# Wider than the rule that is tested; what is left out are heads that no causal model has.
RANDOM = re.compile(r"dropout|pdrop|layerdrop|drop_rate|jitter|noise")
OTHER_HEADS = re.compile(r"^(classifier|summary|seq_classif)")
SMALL: dict[str, Any] = {
    "vocab_size": 256, "hidden_size": 32, "d_model": 32, "n_embd": 32, "word_embed_proj_dim": 32,
    "intermediate_size": 48, "ffn_dim": 48, "d_ff": 48, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16, "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2,
    "num_layers": 2, "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "rotary_dim": 8, "max_position_embeddings": 64,
    "n_positions": 64, "n_ctx": 64, "max_seq_len": 64, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "pad_token_id": 0, "layer_types": ["full_attention"] * 2,
}  # fmt: skip
LARGE = 5_000_000
# Models within models: their towers are large whatever the text is, and refused by name.
COMPOSITE = ("blt", "fuyu", "gemma4", "gemma4_unified", "gemma4_unified_assistant")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    torch.set_num_threads(1)
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(level)


@cache
def default_config(family: str) -> PreTrainedConfig | None:
    """None where a family has no defaults."""
    try:
        return AutoConfig.for_model(family)
    except Exception:
        return None


def random_fields(config: PreTrainedConfig) -> Iterator[tuple[Any, str]]:
    """(holder, name) of every random field of a config and of the configs in it."""
    for name, value in list(vars(config).items()):
        if isinstance(value, PreTrainedConfig):
            yield from random_fields(value)
        elif isinstance(value, float) and RANDOM.search(name) and not OTHER_HEADS.search(name):
            yield config, name


def quieted(config: PreTrainedConfig) -> PreTrainedConfig:
    """A copy whose random fields are all 0."""
    config = copy.deepcopy(config)
    for holder, name in random_fields(config):
        setattr(holder, name, 0.0)
    return config


def refusal(config: PreTrainedConfig) -> str:
    try:
        check_config(config)
    except UnsupportedModel as error:
        return str(error)
    return ""


@pytest.mark.filterwarnings("ignore")
def test_every_random_field_of_every_family_is_refused_by_name() -> None:
    tried = 0
    for family in FAMILIES:
        default = default_config(family)
        if default is None:
            continue
        without = quieted(default)
        # Refused for another reason: nothing can be said of a field that comes after it.
        if refusal(without):
            continue
        for n, (_, name) in enumerate(random_fields(without)):
            config = copy.deepcopy(without)
            holder, _ = list(random_fields(config))[n]
            setattr(holder, name, 0.1)
            assert re.search(rf"\b{name} is 0\.1; .* set it to 0", refusal(config)), (family, name)
            tried += 1
    assert tried > 60


def test_random_fields_of_any_type_and_depth_are_seen() -> None:
    config = AutoConfig.for_model("llama")
    for odd in ({"a": {0: 0.5, "ffn_dropout": 1}}, {"a": {"jitter": True}}, {"noise_std": 0.5}):
        made = copy.deepcopy(config)
        for name, value in odd.items():
            setattr(made, name, value)
        assert "rows that share a prefix would share one draw" in refusal(made), odd
    config.a = {0: 0.5, "downsample": 2, "dropout": 0, "drop": False}
    assert refusal(config) == ""


def small_config(family: str) -> PreTrainedConfig | None:
    """A small config of a family whose layers all attend in full, where it has one; else None."""
    default = default_config(family)
    if default is None or family in COMPOSITE:
        return None
    known: Mapping[str, Any] = default.to_dict()
    fields = {name: value for name, value in SMALL.items() if name in known}
    choices = [fields, {k: v for k, v in fields.items() if k != "layer_types"}]
    if "sliding_window" in known and "layer_types" not in known:
        choices.insert(0, fields | {"sliding_window": None})
    for chosen in choices:
        try:
            return quieted(AutoConfig.for_model(family, **chosen))
        except Exception:
            continue
    return None


def outcome(family: str) -> str:
    """ "equal" or what is wrong; "refused"; "not built" where transformers cannot make it small."""
    config = small_config(family)
    if config is None:
        return "not built"
    rows = awkward_rows()
    try:
        check_config(config)
        try:
            with torch.device("meta"):
                lm = AutoModelForCausalLM.from_config(config)
            if sum(p.numel() for p in lm.parameters()) > LARGE:
                return "not built"
            torch.manual_seed(0)
            lm = AutoModelForCausalLM.from_config(config)
        except Exception:
            return "not built"
        found = check_equivalence(TreeLM(lm, family, "random"), rows, [one_tree(rows)])
    except UnsupportedModel:
        return "refused"
    return "equal" if found.equal else found.verdict


# Of each way to be refused or to be equal one; the deep test has all families.
FEW = {
    "bert": "refused",  # bidirectional, and a layer before its head
    "electra": "refused",
    "minicpm3": "refused",  # scales its logits by fields of its own
    "deepseek_v32": "refused",  # chooses keys
    "llama4_text": "refused",  # scales queries by their place in the packed order
    "gpt_neox": "equal",
    "mixtral": "equal",
    "opt": "equal",
    "deepseek_v3": "equal",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FEW)
def test_a_family_is_equal_or_refused(family: str) -> None:
    assert outcome(family) == FEW[family]


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")
def test_every_family_is_equal_or_refused() -> None:
    found = {family: outcome(family) for family in FAMILIES}
    wrong = {f: said for f, said in found.items() if said not in ("equal", "refused", "not built")}
    assert not wrong
    counts = [list(found.values()).count(word) for word in ("equal", "refused", "not built")]
    assert counts[0] >= 70 and counts[2] <= 30, counts
