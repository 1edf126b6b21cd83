"""Names of the models that a plan may choose without a file or the Hub.

They are those of ``kernels.model.presets``, which needs torch; pages list them without it.
"""

from __future__ import annotations

MODELS = (
    "tiny",
    "small",
    "qwen3-0.6b",
    "qwen3-1.7b",
    "qwen3-4b",
    "qwen3-8b",
    "llama-3.2-1b",
    "llama-3.2-3b",
)
