"""Which torch to install: the base Python's own, a CPU build or a CUDA build."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import sys
import threading
import urllib.request
from pathlib import Path

from scripts.system import PYTHON, ROOT, SetupError, answer, say

TORCH_FOR_CPU = "https://download.pytorch.org/whl/cpu"
PROBE_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
print(json.dumps({
    "version": str(torch.__version__),
    "built_for": torch.version.cuda or torch.version.hip or "",
    "gpu": torch.cuda.get_device_name(0) if cuda else "",
}))
"""


def has_nvidia_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU, whatever torch thinks of it."""
    return Path("/dev/nvidia0").exists() or bool(answer("nvidia-smi", "-L", seconds=20))


def probe_torch(python: str | Path) -> dict[str, str] | None:
    """Version, CUDA or ROCm version and first GPU of a Python's torch; None if it has none."""
    text = answer(python, "-c", PROBE_TORCH)
    return dict(json.loads(text.splitlines()[-1])) if text else None


def torch_requirement() -> str:
    """The line of requirements.txt that asks for torch."""
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith("torch"))


def keeps_base_torch(gpu: bool) -> bool:
    """Whether the base Python brings a torch that is new enough and built for this machine."""
    found = probe_torch(getattr(sys, "_base_executable", sys.executable))
    if found is None:
        return False
    wanted = re.match(r"torch>=(\d+)\.(\d+)", torch_requirement())
    has = re.match(r"(\d+)\.(\d+)", found["version"])
    name = f"torch {found['version']} of {sys.base_prefix}"
    if wanted and has and tuple(map(int, has.groups())) < tuple(map(int, wanted.groups())):
        say(f"{name} is too old (Espalier needs {wanted[0]}): installing one in .venv.")
        return False
    if gpu and not found["built_for"]:
        say(f"{name} is a CPU build on a machine with a GPU: installing a CUDA one in .venv.")
        return False
    say(f"Keeping {name}.")
    return True


def answers(url: str, seconds: float = 5) -> bool:
    """Whether a URL answers within some seconds, its name's look-up included."""
    replies: list[int] = []

    def ask() -> None:
        quiet = contextlib.suppress(OSError, http.client.HTTPException)
        with quiet, urllib.request.urlopen(url, timeout=seconds) as reply:
            replies.append(reply.status)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(replies)


def torch_indexes(gpu: bool) -> list[list[str]]:
    """pip's options for the indexes to try for torch, in order."""
    if gpu or sys.platform != "linux":
        return [[]]
    if answers(f"{TORCH_FOR_CPU}/torch/"):
        return [["--index-url", TORCH_FOR_CPU], []]
    say(
        "PyTorch's index of CPU builds does not answer: taking torch from the default index, "
        "where it may be a CUDA build of several GB."
    )
    return [[]]


def check_torch(gpu: bool) -> None:
    """Import what was installed; say plainly when there is a GPU that torch cannot see."""
    found = probe_torch(PYTHON)
    if found is None:
        raise SetupError(
            "torch is installed but cannot be imported: delete the folder .venv and run this "
            f"again; `{PYTHON.relative_to(ROOT)} -c 'import torch'` shows the error."
        )
    if found["gpu"]:
        say(f"torch {found['version']} sees the GPU: {found['gpu']}.")
    elif gpu:
        built = f"built for CUDA {found['built_for']}" if found["built_for"] else "a CPU build"
        say(
            f"This machine has an NVIDIA GPU, but torch {found['version']} ({built}) cannot see "
            "it, so Espalier runs on the CPU. An older driver is the usual reason: update it, or "
            "install a torch that fits it with .venv/bin/python -m pip."
        )
