"""What a GPU can do at most, by its makers' data sheets: a yardstick, not a measurement.

Sources: NVIDIA's data sheets of A100, H100, H200, B200, L4, L40S, A10 and RTX 6000 Ada, and the
Ada and Ampere GA102 white papers for GeForce cards. Figures are dense (without sparsity), bfloat16
with float32 sums; float32 is that of the ordinary cores, which exact float32 products run on.
"""

from __future__ import annotations

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


def peak_tflops(device_name: str, dtype: str) -> float | None:
    """Dense TFLOP/s of a device in ``"bfloat16"`` or ``"float32"``; None where we do not know."""
    words = f" {device_name} "
    for name, bfloat16, float32 in _PEAKS:
        if f" {name} " in words.replace("-", " "):
            return {"bfloat16": bfloat16, "float32": float32}.get(dtype)
    return None
