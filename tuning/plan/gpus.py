"""GPUs and networks by their makers' data sheets, a yardstick; and what is in this machine.

Sources: NVIDIA's data sheets of A100, H100, H200, B200, L4, L40S, A10 and RTX 6000 Ada, and the
Ada and Ampere GA102 white papers for GeForce cards. Figures are dense (without sparsity), bfloat16
with float32 sums; float32 is that of the ordinary cores, which exact float32 products run on.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

# part of the device's name -> dense TFLOP/s in bfloat16 and float32; the first that fits counts
_PEAKS: tuple[tuple[str, float, float], ...] = (
    ("H100 PCIe", 756.0, 51.0),
    ("H100 NVL", 835.0, 60.0),
    ("H200 NVL", 835.0, 60.0),
    ("H100", 989.0, 67.0),
    ("H200", 989.0, 67.0),
    ("GH200", 989.0, 67.0),
    ("B200", 2250.0, 75.0),
    ("A100", 312.0, 19.5),
    ("L40S", 362.0, 91.6),
    ("L4", 121.0, 30.3),
    ("A10", 125.0, 31.2),
    ("RTX 6000 Ada", 364.0, 91.1),
    ("RTX A6000", 154.8, 38.7),
    ("RTX 4090", 165.2, 82.6),
    ("RTX 3090", 71.0, 35.6),
)

# GB/s of memory, GiB of memory, and GB/s of NVLink one way (0: none), by the makers' data sheets
_MEMORY = {
    "a100-40": (1_555, 40, 300),
    "a100-80": (2_039, 80, 300),
    "h100-80": (3_350, 80, 450),
    "h200-141": (4_800, 141, 450),
    "b200": (8_000, 180, 900),
    "l40s": (864, 48, 0),
    "rtx-4090": (1_008, 24, 0),
}
GPUS = tuple(_MEMORY)

Network = Literal["auto", "nvlink", "pcie", "ib", "ethernet"]
_NETWORKS: Mapping[Network, float] = {"nvlink": 450, "pcie": 32, "ib": 50, "ethernet": 12.5}
"""GB/s one way and GPU: NVLink 4 (where the GPU's own is not known), PCIe 4.0 x16, an InfiniBand
NDR port (400 Gb/s) and 100 Gb/s Ethernet."""


@dataclass(frozen=True)
class Gpu:
    """A GPU by its data sheet: dense TFLOP/s, GB/s of memory, GiB of memory, GB/s of NVLink."""

    name: str
    bfloat16_tflops: float
    float32_tflops: float
    bandwidth_gbs: float
    memory_gib: float
    nvlink_gbs: float = 0.0

    def network_gbs(self, network: Network) -> float:
        """GB/s one way between two of them; ``auto`` is NVLink where they have it, else PCIe."""
        if network == "auto":
            network = "nvlink" if self.nvlink_gbs else "pcie"
        return self.nvlink_gbs if network == "nvlink" and self.nvlink_gbs else _NETWORKS[network]


def peak_tflops(device_name: str, dtype: str) -> float | None:
    """Dense TFLOP/s of a device in ``"bfloat16"`` or ``"float32"``; None where we do not know."""
    words = f" {device_name} "
    for name, bfloat16, float32 in _PEAKS:
        if f" {name} " in words.replace("-", " "):
            return {"bfloat16": bfloat16, "float32": float32}.get(dtype)
    return None


def gpu_named(device: str) -> Gpu | None:
    """A GPU of the table, or ``gpu:TFLOPS:GB_PER_S:GIB`` of one's own; None for a real device.

    Raises ValueError where the own numbers cannot be read.
    """
    name = device.lower()
    if name in _MEMORY:
        bandwidth, memory, nvlink = _MEMORY[name]
        sheet = name.upper().replace("-", " ")
        bf16, fp32 = peak_tflops(sheet, "bfloat16"), peak_tflops(sheet, "float32")
        assert bf16 is not None and fp32 is not None  # every GPU of the table has its peaks
        return Gpu(name, bf16, fp32, bandwidth, memory, nvlink)
    if not name.startswith("gpu:"):
        return None
    try:
        tflops, bandwidth_gbs, gib = (float(x) for x in name.removeprefix("gpu:").split(":"))
        if min(tflops, bandwidth_gbs, gib) <= 0:
            raise ValueError
    except ValueError:
        raise ValueError(
            f"{device!r}: a GPU of one's own is gpu:TFLOPS:GB_PER_S:GIB, such as gpu:400:2000:64; "
            f"known ones are {', '.join(GPUS)}."
        ) from None
    return Gpu(name, tflops, tflops, bandwidth_gbs, gib)


@cache
def devices() -> tuple[str, ...]:
    """``cpu``, the CUDA devices of this machine, and GPUs that steps can be estimated for."""
    return ("cpu", *(f"cuda:{index}" for index in range(_cuda_count())), *GPUS)


def _cuda_count() -> int:
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
