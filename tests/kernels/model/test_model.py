"""Presets have their true shapes, and what a tree would make wrong is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from kernels.attention import TreeMask
from kernels.model import (
    PRESETS,
    ModelNotFound,
    TreeLM,
    UnsupportedModel,
    build_model,
    check_config,
    resolve_config,
)
from kernels.model.context import ATTENTION

torch.set_num_threads(1)

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def config_of(model_type: str, **fields: Any) -> PreTrainedConfig:
    return AutoConfig.for_model(model_type, **(SMALL | fields))


# parameters as the models' cards and safetensors indexes give them
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-1.7b", 1_720_574_976),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-8b", 8_190_735_360),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
    ],
)
def test_presets_have_the_published_number_of_parameters(name: str, parameters: int) -> None:
    model = build_model(name, device="meta", dtype="bfloat16")
    assert model.n_parameters == parameters
    assert f"{parameters:,} parameters, random weights (seed 0), bfloat16" in model.description


def test_weights_follow_the_seed_and_leave_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    a, b, c = build_model("tiny"), build_model("tiny"), build_model("tiny", seed=1)
    assert torch.equal(torch.rand(3), expected)
    key = "lm.model.layers.0.mlp.up_proj.weight"
    assert torch.equal(a.state_dict()[key], b.state_dict()[key])
    assert not torch.equal(a.state_dict()[key], c.state_dict()[key])


def test_vocabulary_is_raised_to_the_data_and_never_lowered() -> None:
    own = PRESETS["tiny"]["vocab_size"]
    assert resolve_config("tiny", vocab_at_least=own + 7).vocab_size == own + 7
    assert resolve_config("tiny", vocab_at_least=3).vocab_size == own
    assert resolve_config("Qwen3-0.6B").vocab_size == 151_936
    assert PRESETS["tiny"]["vocab_size"] == own


def test_a_config_file_and_its_folder_are_read(tmp_path: Path) -> None:
    fields = config_of("llama").to_dict() | {"model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    for name in (str(tmp_path), str(tmp_path / "config.json")):
        model = build_model(name)
        assert model.config.model_type == "llama" and model.config.hidden_size == 32


def test_a_wrong_name_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"neither a preset \(tiny, small, qwen3-0.6b"):
        build_model("qwen3-9b")
    with pytest.raises(ModelNotFound, match=r"holds no config\.json"):
        build_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelNotFound, match="cannot be read"):
        build_model(str(tmp_path))


REFUSALS: list[tuple[str, PreTrainedConfig, str]] = [
    (
        "sliding layers",
        config_of("qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=1),
        "layer 1 is sliding_attention .*sibling branches",
    ),
    (
        "window without layer types",
        config_of("starcoder2", sliding_window=16),
        r"sliding window of 16 tokens \(sliding_window\)",
    ),
    (
        "hybrid",
        config_of("qwen3_next", num_hidden_layers=4),
        r"layer 0 is linear_attention \(layer_types\)",
    ),
    ("hybrid, text of Qwen3.5", config_of("qwen3_5_text", num_hidden_layers=4), "linear_attention"),
    ("vision", AutoConfig.for_model("qwen2_5_vl"), r"vision tower \(vision_config\)"),
    ("Qwen3.5 with its vision tower", AutoConfig.for_model("qwen3_5"), "vision tower"),
    ("dropout", config_of("qwen3", attention_dropout=0.1), "attention_dropout is 0.1.*set it to 0"),
    ("residual dropout", config_of("gpt2", attn_pdrop=0.0, embd_pdrop=0.0), "resid_pdrop is 0.1"),
    ("embedding dropout", config_of("gpt2", attn_pdrop=0.0, resid_pdrop=0.0), "embd_pdrop is 0.1"),
    ("hidden dropout", config_of("gpt_neox", hidden_dropout=0.2), "hidden_dropout is 0.2"),
    (
        "activation dropout",
        config_of("opt", dropout=0.0, activation_dropout=0.3),
        "activation_drop",
    ),
    ("layer dropout", config_of("opt", dropout=0.0, layerdrop=0.3), "layerdrop is 0.3"),
    (
        "router jitter",
        config_of("mixtral", router_jitter_noise=0.01),
        "router_jitter_noise is 0.01",
    ),
    (
        "input jitter",
        config_of("phimoe", router_jitter_noise=0.0, input_jitter_noise=0.02),
        "input_jitter_noise is 0.02",
    ),
    (
        "nested dropout",
        AutoConfig.for_model("dbrx", attn_config={"attn_pdrop": 0.1}),
        r"attn_config\.attn_pdrop is 0.1",
    ),
    ("router loss", config_of("qwen3_moe", output_router_logits=True), "count a shared token once"),
    ("attentions", config_of("qwen3", output_attentions=True), "output_attentions"),
    (
        "chunked",
        config_of("llama4_text", layer_types=["chunked_attention", "full_attention"]),
        "layer 0 is chunked_attention",
    ),
    ("soft cap", config_of("gemma2", layer_types=["full_attention"] * 2), "softcapping is"),
    ("logit scale", config_of("granite", logits_scaling=8.0), "logits_scaling is 8.0"),
    (
        "latent attention",
        config_of("deepseek_v3", qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16),
        "keys of 24 and values of 16",
    ),
    (
        "length-dependent positions",
        config_of(
            "llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
        ),
        "'dynamic' .*longest row",
    ),
    ("encoder-decoder", AutoConfig.for_model("t5"), "encoder-decoder"),
]


@pytest.mark.parametrize(
    ("config", "message"), [c[1:] for c in REFUSALS], ids=[c[0] for c in REFUSALS]
)
def test_configs_that_a_tree_makes_wrong_are_refused(
    config: PreTrainedConfig, message: str
) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        check_config(config)


def test_a_window_that_no_layer_uses_is_no_reason_to_refuse() -> None:
    check_config(config_of("qwen2", use_sliding_window=False, sliding_window=4096))
    check_config(config_of("qwen3"))
    check_config(config_of("llama"))


def test_attention_sinks_are_refused_by_the_layer_that_holds_them() -> None:
    config = config_of(
        "gpt_oss",
        layer_types=["full_attention"] * 2,
        num_local_experts=2,
        head_dim=16,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )
    lm = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with pytest.raises(UnsupportedModel, match=r"layers\.0\.self_attn\.sinks"):
        TreeLM(lm, "gpt-oss", "random")


def test_state_space_models_are_refused() -> None:
    config = AutoConfig.for_model(
        "mamba", vocab_size=64, hidden_size=32, num_hidden_layers=1, state_size=4
    )
    lm = AutoModelForCausalLM.from_config(config)
    with pytest.raises(UnsupportedModel, match="mamba"):
        TreeLM(lm, "mamba", "random")


def _forward(model: TreeLM) -> torch.Tensor:
    mask = TreeMask.from_subtree_end(torch.tensor([3, 2, 3]))
    return model.hidden_states(torch.tensor([1, 2, 3]), torch.tensor([0, 1, 1]), mask)


def test_dropout_set_after_building_is_refused_in_training_only() -> None:
    model = build_model("tiny")
    model.lm.model.layers[1].self_attn.attention_dropout = 0.25
    with pytest.raises(UnsupportedModel, match=r"layer 1 \(Qwen3Attention\) drops 0.25"):
        _forward(model)
    model.eval()
    assert _forward(model).shape == (3, 64)


@pytest.mark.parametrize("layer", [torch.nn.Dropout(0.1), torch.nn.BatchNorm1d(64)], ids=str)
def test_layers_that_shared_tokens_make_wrong_are_refused(layer: torch.nn.Module) -> None:
    lm = build_model("tiny").lm
    lm.model.layers[1].extra = layer
    with pytest.raises(UnsupportedModel, match=r"model\.layers\.1\.extra"):
        TreeLM(lm, "changed", "random")


@pytest.mark.parametrize("field", ["jitter_noise", "residual_dropout"])
def test_random_fields_of_a_layer_are_refused(field: str) -> None:
    lm = build_model("tiny").lm
    setattr(lm.model.layers[1].mlp, field, 0.1)
    with pytest.raises(UnsupportedModel, match=rf"{field} of model\.layers\.1\.mlp .* is 0\.1"):
        TreeLM(lm, "changed", "random")


def test_whatever_draws_random_numbers_in_training_is_refused() -> None:
    model = build_model("tiny")
    mlp = model.lm.model.layers[1].mlp
    original = mlp.forward
    mlp.forward = lambda x: original(x) * (1 + 0.1 * torch.rand_like(x) * model.training)
    with pytest.raises(UnsupportedModel, match="draws random numbers in training"):
        _forward(model)
    model.eval()
    assert _forward(model).shape == (3, 64)


@pytest.mark.parametrize("model_type", ["falcon", "gpt_neo"])
def test_attention_that_cannot_be_replaced_is_refused(model_type: str, tmp_path: Path) -> None:
    AutoConfig.for_model(
        model_type, vocab_size=64, hidden_size=32, num_hidden_layers=2, num_layers=2, num_heads=2,
        num_attention_heads=2, attention_types=[[["global"], 2]], attention_dropout=0.0,
        embed_dropout=0.0, resid_dropout=0.0, classifier_dropout=0.1,
    ).save_pretrained(tmp_path)  # fmt: skip
    with pytest.raises(UnsupportedModel, match=f"{model_type}: .*attention cannot be replaced"):
        build_model(str(tmp_path))


def test_keywords_that_change_attention_are_refused_by_layer() -> None:
    model = build_model("tiny")
    model.lm.model.layers[1].self_attn.sliding_window = 8
    with pytest.raises(UnsupportedModel, match=r"layer 1 .* asks for a sliding window"):
        _forward(model)


def test_a_layer_that_does_not_attend_through_the_tree_is_an_error() -> None:
    model = build_model("tiny")
    attention = model.lm.model.layers[1].self_attn
    attention.forward = lambda hidden_states, **_: (hidden_states, None)
    with pytest.raises(UnsupportedModel, match="layer 1 did not attend through the tree"):
        _forward(model)


def test_a_model_used_without_its_tree_is_an_error() -> None:
    model = build_model("tiny")
    with pytest.raises(UnsupportedModel, match=r"layer 0 .* was not handed the tree"):
        model.lm(input_ids=torch.tensor([[1, 2]]))


def test_no_mask_of_n_by_n_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    masks: list[object] = []
    model = build_model("tiny")
    layer = model.lm.model.layers[0].self_attn
    original = layer.forward

    def spy(*args: Any, **kwargs: Any) -> Any:
        masks.append(kwargs["attention_mask"])
        return original(*args, **kwargs)

    monkeypatch.setattr(layer, "forward", spy)
    _forward(model)
    assert masks == [None]


def test_plain_attention_is_undone() -> None:
    model = build_model("tiny")
    with model.plain_attention() as lm:
        assert lm.config._attn_implementation == "sdpa"
    assert model.config._attn_implementation == ATTENTION
    assert _forward(model).shape == (3, 64)
