"""Model shapes by name, from a config.json, a folder, or a Hub id: shapes only, never weights.

Notable:
- the named models carry their published shapes, so times and memory are those of the real model
- ``tiny`` and ``small`` are Qwen3 models that train on a CPU in seconds; their head size is one
  that every attention backend takes
- a vocabulary is raised, never lowered, to hold the largest token id of the data
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig


class ModelNotFound(ValueError):
    """No such preset, file, folder or Hub id; the message lists what there is."""


def _qwen3(hidden: int, inner: int, layers: int, heads: int, kv_heads: int, **other: Any) -> Any:
    """Fields of a Qwen3 config (https://huggingface.co/Qwen, config.json of each size)."""
    return {
        "model_type": "qwen3",
        "vocab_size": 151_936,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": 128,
        "max_position_embeddings": 40_960,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "tie_word_embeddings": True,
    } | other


def _llama32(hidden: int, layers: int, heads: int, head_dim: int) -> Any:
    """Fields of a Llama 3.2 config (https://huggingface.co/meta-llama, config.json of each)."""
    return {
        "model_type": "llama",
        "vocab_size": 128_256,
        "hidden_size": hidden,
        "intermediate_size": 8_192,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": head_dim,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500_000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8_192,
        },
        "tie_word_embeddings": True,
    }


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": _qwen3(64, 192, 2, 2, 1, head_dim=64, vocab_size=1_024),
    "small": _qwen3(256, 768, 4, 4, 2, head_dim=64, vocab_size=8_192),
    "qwen3-0.6b": _qwen3(1_024, 3_072, 28, 16, 8),
    "qwen3-1.7b": _qwen3(2_048, 6_144, 28, 16, 8),
    "qwen3-4b": _qwen3(2_560, 9_728, 36, 32, 8),
    "qwen3-8b": _qwen3(4_096, 12_288, 36, 32, 8, tie_word_embeddings=False),
    "llama-3.2-1b": _llama32(2_048, 16, 32, 64),
    "llama-3.2-3b": _llama32(3_072, 28, 24, 128),
}


def resolve_config(name: str, vocab_at_least: int = 0) -> PreTrainedConfig:
    """The config of a preset, a ``config.json``, a folder that holds one, or a Hub id.

    vocab_at_least: one more than the largest token id of the data; a smaller vocabulary is raised.
    Only the config is read: no weights, no code from the Hub. Raises ModelNotFound.
    """
    if name.lower() in PRESETS:
        fields = dict(PRESETS[name.lower()])
        config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    else:
        config = _read_config(name)
    # composite configs (vision and text) keep their sizes in a text config; the model refuses them
    if getattr(config, "vocab_size", vocab_at_least) < vocab_at_least:
        config.vocab_size = vocab_at_least
    return config


def _read_config(name: str) -> PreTrainedConfig:
    known = ", ".join(PRESETS)
    path = Path(name).expanduser()
    if not path.exists() and ("/" not in name or name.endswith(".json")):
        raise ModelNotFound(
            f"model {name!r} is neither a preset ({known}) nor a file or folder here; "
            "a Hub id has the form owner/name"
        )
    if path.is_dir() and not (path / "config.json").is_file():
        raise ModelNotFound(f"the folder {name!r} holds no config.json")
    try:
        source = str(path) if path.exists() else name
        config: PreTrainedConfig = AutoConfig.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelNotFound(f"the config of {name!r} cannot be read: {reason}") from error
    return config
