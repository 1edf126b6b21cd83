"""What is in a compiled kernel: registers, spills and the instructions of its hot loop.

Notable:
- read with ``cuobjdump`` and ``nvdisasm``, both shipped with Triton: what is shown is what ptxas
  made, not an estimate
- the hot loop is the one of whole tiles: of the loops that multiply matrices and hold no other such
  loop, the one with the fewest instructions (masks only add to it)
- ``local_accesses`` counts LDL and STL, registers spilled to memory; ``hot_local`` those inside the
  hot loop
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

MATRIX_INSTRUCTIONS = ("UTCHMMA", "HGMMA", "HMMA", "FFMA")
_LABEL = re.compile(r"^(\.L_x_\d+):")
_OPERATION = re.compile(r"^\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*(?:\.[\w.]+)?)(.*)")


def read_cubin(cubin: bytes) -> dict[str, Any]:
    """Registers, stack and spills of a kernel, and what one turn of its hot loop executes.

    mma: the matrix instruction: HMMA (sm_80), HGMMA (sm_90, warp groups), UTCHMMA (sm_100, tensor
    memory), FFMA where float32 products are exact; mma_shape: its shape where its name has one;
    loop_instructions: those of the hot loop, a thread; fences: of them, those that make shared
    memory visible to the matrix unit; bulk_loads: tensor loads by the copy engine (UTMALDG);
    reductions: sums into memory (UTMAREDG, RED).
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        usage = _tool("cuobjdump", "--dump-resource-usage", str(file))
        code = _tool("nvdisasm", "-c", str(file))
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump did not print registers and stack but:\n{usage}")
    return {"registers": int(found[1]), "stack_bytes": int(found[2]), **read_code(code)}


def read_code(code: str) -> dict[str, Any]:
    """What ``read_cubin`` says of a disassembly."""
    operations, labels, branches = _parse(code)
    names = [name for name, _ in operations]
    mma = next((m for m in MATRIX_INSTRUCTIONS if any(n.split(".")[0] == m for n in names)), "none")
    shape = next((n.split(".")[1] for n in names if n.startswith(("HGMMA.", "HMMA."))), None)
    loops = [(labels[to], at) for at, to in branches if labels.get(to, at + 1) <= at]
    busy = [loop for loop in loops if any(n.split(".")[0] == mma for n in names[slice(*loop)])]
    inner = [a for a in busy if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in busy)]
    hot = min(inner, key=lambda loop: loop[1] - loop[0], default=(0, 0))
    body = [name for name in names[hot[0] : hot[1] + 1] if name != "NOP"] if inner else []
    return {
        "local_accesses": _count(names, "LDL", "STL"),
        "mma": mma,
        "mma_shape": shape,
        "loop_instructions": len(body),
        "hot_local": _count(body, "LDL", "STL"),
        "fences": sum(name.startswith("FENCE.VIEW.ASYNC") for name in body),
        "bulk_loads": _count(names, "UTMALDG"),
        "reductions": _count(names, "UTMAREDG", "RED", "REDG"),
    }


def _count(names: list[str], *operations: str) -> int:
    return sum(name.split(".")[0] in operations for name in names)


def _parse(code: str) -> tuple[list[tuple[str, str]], dict[str, int], list[tuple[int, str]]]:
    """Operations with their operands, labels to places among them, (place, label) of branches."""
    operations: list[tuple[str, str]] = []
    labels: dict[str, int] = {}
    branches: list[tuple[int, str]] = []
    for line in code.splitlines():
        label = _LABEL.match(line)
        if label is not None:
            labels[label[1]] = len(operations)
            continue
        found = _OPERATION.match(re.sub(r"/\*.*?\*/", "", line))
        if found is None:
            continue
        if found[1].split(".")[0] in ("BRA", "@BRA") or found[1].startswith("BRA"):
            target = re.search(r"`\((\.L_x_\d+)\)", found[2])
            if target is not None:
                branches.append((len(operations), target[1]))
        operations.append((found[1], found[2]))
    return operations, labels, branches


def _tool(name: str, *arguments: str) -> str:
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout
