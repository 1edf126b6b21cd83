"""The machine that measures: its name, its versions, its load when a step was timed."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from tuning.jobs.host import cpu_model
from tuning.jobs.points import installed_versions

_ROOT = Path(__file__).resolve().parents[2]


def fixed_threads() -> int:
    """Threads of a measurement on a CPU: ``OMP_NUM_THREADS``, or the cores this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine_name(device: torch.device) -> str:
    """The device as a history should name it: GPU model, or processor and threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu {platform.machine()}, {torch.get_num_threads()} threads"


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` of its children names them.

    One name a device, in the order of ``cuda:0``, ``cuda:1`` …
    """
    count = torch.cuda.device_count()
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named[:count] if len(named) >= count else [str(index) for index in range(count)]


def versions(device: torch.device) -> dict[str, str]:
    """Versions of what ran, and the state of the machine: load, or clock and temperature."""
    return _versions() | (_gpu_state(device) if device.type == "cuda" else _cpu_state())


@cache
def _versions() -> dict[str, str]:
    found = installed_versions("torch", "transformers", "triton")
    if __package__.startswith("espalier."):  # a wheel is a version, not a checkout
        return found | {"espalier": version("espalier")}
    revision = _run("git", "-C", str(_ROOT), "rev-parse", "--short=12", "HEAD")
    return found | ({"espalier": revision} if revision else {})


def _cpu_state() -> dict[str, str]:
    state = {"threads": str(torch.get_num_threads()), "cpu": cpu_model()}
    if hasattr(os, "getloadavg"):
        state["load"] = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    return state


def _gpu_state(device: torch.device) -> dict[str, str]:
    index = torch.cuda.current_device() if device.index is None else device.index
    uuid = str(torch.cuda.get_device_properties(index).uuid)
    query = "--query-gpu=clocks.sm,temperature.gpu"
    line = _run("nvidia-smi", query, "--format=csv,noheader", "-i", f"GPU-{uuid}")
    clock, _, degrees = line.partition(",")
    return {"clock": clock, "temperature": f"{degrees.strip()} °C"} if degrees else {}


def _run(*command: str) -> str:
    """What a command prints; nothing where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
