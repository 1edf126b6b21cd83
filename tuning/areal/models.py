"""What a model is, as far as tree training cares: its attention, its size.

Notable:
- a ``config.json`` is read by its fields, whatever the family's name: at a local path, or in the
  Hub's cache; without one a Hub id is recognised by its published name
- what is not recognised is None: a rule then says "not checked" and guesses nothing
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Model:
    """Facts of a model.

    family:   ``model_type`` of its config.json
    vision, hybrid, sliding, latent, experts: takes images; has linear-attention layers; has
              sliding-window layers; multi-head latent attention; mixture of experts
    heads, kv_heads, head_dim, layers, hidden, vocab: 0 where not known
    parameters: count, 0 where not known
    """

    name: str
    family: str
    layers: int = 0
    hidden: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    vocab: int = 0
    parameters: int = 0
    vision: bool = False
    hybrid: bool = False
    sliding: bool = False
    latent: bool = False
    experts: bool = False


_Q3, _Q25, _Q25L, _L3 = 151_936, 151_936, 152_064, 128_256
_QWEN25 = {
    "0.5b": Model("", "qwen2", 24, 896, 14, 2, 64, _Q25, 494_000_000),
    "1.5b": Model("", "qwen2", 28, 1536, 12, 2, 128, _Q25, 1_544_000_000),
    "3b": Model("", "qwen2", 36, 2048, 16, 2, 128, _Q25, 3_086_000_000),
    "7b": Model("", "qwen2", 28, 3584, 28, 4, 128, _Q25L, 7_616_000_000),
    "14b": Model("", "qwen2", 48, 5120, 40, 8, 128, _Q25L, 14_770_000_000),
    "32b": Model("", "qwen2", 64, 5120, 40, 8, 128, _Q25L, 32_760_000_000),
    "72b": Model("", "qwen2", 80, 8192, 64, 8, 128, _Q25L, 72_700_000_000),
}
_QWEN3 = {
    "0.6b": Model("", "qwen3", 28, 1024, 16, 8, 128, _Q3, 596_000_000),
    "1.7b": Model("", "qwen3", 28, 2048, 16, 8, 128, _Q3, 1_721_000_000),
    "4b": Model("", "qwen3", 36, 2560, 32, 8, 128, _Q3, 4_022_000_000),
    "8b": Model("", "qwen3", 36, 4096, 32, 8, 128, _Q3, 8_191_000_000),
    "14b": Model("", "qwen3", 40, 5120, 40, 8, 128, _Q3, 14_770_000_000),
    "32b": Model("", "qwen3", 64, 5120, 64, 8, 128, _Q3, 32_760_000_000),
    "30b-a3b": Model("", "qwen3_moe", 48, 2048, 32, 4, 128, _Q3, 30_530_000_000, experts=True),
    "235b-a22b": Model("", "qwen3_moe", 94, 4096, 64, 4, 128, _Q3, 235_100_000_000, experts=True),
}
_LLAMA = {
    "1b": Model("", "llama", 16, 2048, 32, 8, 64, _L3, 1_236_000_000),
    "3b": Model("", "llama", 28, 3072, 24, 8, 128, _L3, 3_213_000_000),
    "8b": Model("", "llama", 32, 4096, 32, 8, 128, _L3, 8_030_000_000),
    "70b": Model("", "llama", 80, 8192, 64, 8, 128, _L3, 70_550_000_000),
}
_SIZE = r"(\d+(?:\.\d+)?b(?:-a\d+b)?)"

_KINDS: tuple[tuple[str, Model], ...] = (
    (r"qwen3[.-]5|qwen3\.[6-9]", Model("", "qwen3_5", vision=True, hybrid=True)),
    (r"qwen3-next", Model("", "qwen3_next", hybrid=True, experts=True)),
    (r"qwen3-omni", Model("", "qwen3_omni_moe", vision=True, experts=True)),
    (r"qwen3-vl", Model("", "qwen3_vl", vision=True)),
    (r"qwen2[.]5-(vl|omni)", Model("", "qwen2_5_vl", vision=True)),
    (r"qwen2-vl", Model("", "qwen2_vl", vision=True)),
    (r"internvl|llava|pixtral|kimi-vl|glm-4(\.\d)?v", Model("", "vision", vision=True)),
    (r"deepseek-(v2|v3|r1$|r1-0528$)", Model("", "deepseek_v3", latent=True, experts=True)),
    (r"kimi-k2", Model("", "kimi_k2", latent=True, experts=True)),
    (r"gemma-3-1b", Model("", "gemma3_text", sliding=True)),
    (r"gemma-3", Model("", "gemma3", vision=True, sliding=True)),
    (r"gemma-2", Model("", "gemma2", sliding=True)),
    (r"gpt-oss", Model("", "gpt_oss", sliding=True, experts=True)),
    (r"mixtral", Model("", "mixtral", experts=True)),
    (r"llama-4", Model("", "llama4", vision=True, sliding=True, experts=True)),
    (r"phi-?3(?!\.5-vision)", Model("", "phi3", sliding=True)),
)
_SIZED: tuple[tuple[str, dict[str, Model]], ...] = (
    (r"qwen3(?:guard)?[-_]" + _SIZE, _QWEN3),
    (r"deepseek-r1-distill-qwen-" + _SIZE, _QWEN25),
    (r"deepseek-r1-distill-llama-" + _SIZE, _LLAMA),
    (r"qwen2\.5(?:-math|-coder)?-" + _SIZE, _QWEN25),
    (r"llama-3(?:\.[123])?-" + _SIZE, _LLAMA),
)


def find_model(path: str, root: Path | None = None) -> Model | None:
    """The model at a folder (its ``config.json``), or of a Hub id; None where not recognised.

    root: where a relative path starts
    """
    if not path:
        return None
    try:
        folder = Path(root or ".", path).expanduser()
        file = folder if folder.name == "config.json" else folder / "config.json"
        if not file.is_file() and re.fullmatch(r"[\w.-]+/[\w.-]+", path):
            file = _cached(path) or file
        if file.is_file() and file.stat().st_size < 2**20:
            return from_config(json.loads(file.read_text()), path)
    except (OSError, ValueError):
        return None
    name = path.rstrip("/").split("/")[-1].lower()
    for pattern, kind in _KINDS:
        if re.search(pattern, name):
            return replace(kind, name=path)
    for pattern, sizes in _SIZED:
        match = re.search(pattern, name)
        if match and match.group(1) in sizes:
            return replace(sizes[match.group(1)], name=path)
    return None


def _cached(name: str) -> Path | None:
    """A Hub model's ``config.json`` where it has been downloaded before; nothing is fetched."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json")
    return Path(found) if isinstance(found, str) else None


_SENSES = (
    "vision_config",
    "image_token_id",
    "image_token_index",
    "audio_config",
    "visual",
    "vision_tower",
    "mm_vision_tower",
    "thinker_config",
)
_LAYERS = ("layer_types", "layers_block_type", "block_types", "attn_types")
_WINDOW = ("sliding_window", "sliding_window_pattern", "attention_chunk_size", "local_attention")
_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention", "global")
_STATE = re.compile(r"linear|mamba|ssm|recurrent|rwkv|conv|delta|lightning|hybrid|full_attention_i")
"""What names a layer, a field or a family whose state runs through the tokens in their order."""


def from_config(config: Mapping[str, Any], name: str = "") -> Model:
    """Facts from a Hugging Face ``config.json``."""
    text = config.get("text_config")
    text = text if isinstance(text, Mapping) else config
    family = str(config.get("model_type", ""))
    kinds = [str(kind) for name in _LAYERS for kind in _list(text.get(name))]
    window = any(text.get(name) for name in _WINDOW)
    slides = any(word in kind for kind in kinds for word in ("sliding", "chunked", "local")) or (
        not kinds and window and text.get("use_sliding_window", True) is not False
    )
    heads = _whole(text.get("num_attention_heads"))
    hidden = _whole(text.get("hidden_size"))
    return Model(
        name=name,
        family=family,
        vision=any(name in config for name in _SENSES),
        hybrid=any(kind not in _ATTENTION and _STATE.search(kind) for kind in kinds)
        or any(_STATE.match(name) for name in text)
        or bool(_STATE.search(family)),
        sliding=slides,
        latent=any(text.get(name) for name in ("kv_lora_rank", "qk_rope_head_dim")),
        experts=any(
            _whole(text.get(key)) > 1
            for key in ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
        ),
        heads=heads,
        kv_heads=_whole(text.get("num_key_value_heads")) or heads,
        head_dim=_whole(text.get("head_dim")) or (hidden // heads if heads else 0),
        layers=_whole(text.get("num_hidden_layers")),
        hidden=hidden,
        vocab=_whole(text.get("vocab_size")),
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
