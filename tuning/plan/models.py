"""The models that a plan may choose by name: those of ``kernels.model.presets``, without torch."""

from __future__ import annotations

HUB_IDS = {
    "tiny": None,
    "small": None,
    "qwen3-0.6b": "Qwen/Qwen3-0.6B",
    "qwen3-1.7b": "Qwen/Qwen3-1.7B",
    "qwen3-4b": "Qwen/Qwen3-4B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "llama-3.2-1b": "meta-llama/Llama-3.2-1B",
    "llama-3.2-3b": "meta-llama/Llama-3.2-3B",
}
"""Their names on the Hub; ``tiny`` and ``small`` are random models of ours."""

MODELS = tuple(HUB_IDS)
