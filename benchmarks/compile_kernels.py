"""Compiles the Triton kernels ahead of time, without a GPU, and reads what came out.

Notable:
- registers, stack and shared memory come from ``cuobjdump``, instructions from ``nvdisasm``, both
  shipped with Triton: what is shown is what ptxas made, not an estimate
- ``local_accesses`` counts LDL and STL: registers spilled to memory
- ``mma`` is the matrix instruction in the machine code: HMMA (sm_80), HGMMA (sm_90, warp groups),
  UTCHMMA (sm_100, tensor memory, ``tcgen05.mma`` in PTX); FFMA where float32 products are exact
- shapes: 4 query heads a key head by default, tokens and strides multiples of 16

    python -m benchmarks.compile_kernels [--arch 90] [--head-dim 128] [--dtype bf16] [--json]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.triton.configs import (
    HEAD_DIMS,
    PASSES,
    SHARED_LIMIT,
    Config,
    Pass,
    default_config,
    family,
    heads_per_tile,
)

ARCHS = (80, 90, 100)
ITEMSIZE = {"bf16": 2, "fp16": 2, "fp32": 4}
MATRIX_INSTRUCTIONS = ("UTCHMMA", "HGMMA", "HMMA", "FFMA")
_INT_POINTERS = ("subtree_end", "query_tiles", "key_tiles", "chunks")
_FLOAT_POINTERS = ("lse", "delta", "chunk_sums")
_COUNTS = ("n_lanes", "lanes_per_batch", "kv_heads")


@dataclass(frozen=True)
class CompileJob:
    """One kernel to compile: for ``sm_<arch>``, with ``group`` query heads a key head."""

    kernel: Pass
    arch: int
    head_dim: int
    dtype: str
    group: int
    config: Config

    @property
    def default(self) -> bool:
        return self.config == default_config(
            self.kernel, self.arch, self.head_dim, ITEMSIZE[self.dtype], self.group
        )


def jobs(
    archs: Sequence[int] = ARCHS,
    head_dims: Sequence[int] = HEAD_DIMS,
    dtypes: Sequence[str] = ("bf16", "fp16"),
    group: int = 4,
    kernels: Sequence[Pass] = PASSES,
) -> list[CompileJob]:
    """The default configuration of every kernel for every combination."""
    return [
        CompileJob(kernel, arch, dim, dtype, group, default_config(*what, ITEMSIZE[dtype], group))
        for arch in archs
        for dim in head_dims
        for dtype in dtypes
        for kernel in kernels
        for what in [(kernel, arch, dim)]
    ]


def compile_job(job: CompileJob) -> dict[str, Any]:
    """Compiles ``job`` and returns its row of the table; Triton keeps what it has compiled."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kernels.triton.dkv import dkv_kernel
    from kernels.triton.dq import dq_kernel
    from kernels.triton.forward import forward_kernel

    function = {"forward": forward_kernel, "dq": dq_kernel, "dkv": dkv_kernel}[job.kernel]
    heads = heads_per_tile(job.group, job.config.rows)
    constants = {
        "GROUP": job.group,
        "PACK": heads,
        "HEAD_DIM": job.head_dim,
        "BLOCK_D": 1 << (job.head_dim - 1).bit_length(),
        "ROWS": job.config.rows,
        "KEYS": job.config.keys,
        "PRECISION": "ieee" if job.dtype == "fp32" else "tf32",
    }
    signature: dict[str, str] = {}
    hints: dict[tuple[int], list[list[Any]]] = {}
    for place, name in enumerate(function.arg_names):
        signature[name] = _argument_type(name, job.dtype, constants)
        if signature[name].startswith("*") or name.startswith("stride_") or name == "n_tokens":
            hints[(place,)] = [["tt.divisibility", 16]]
    compiled = triton.compile(
        ASTSource(function, signature, constants, hints),
        target=GPUTarget("cuda", job.arch, 32),
        options={
            "num_warps": job.config.warps,
            "num_stages": job.config.stages,
            "enable_fp_fusion": True,
        },
    )
    return {
        "kernel": job.kernel,
        "arch": job.arch,
        "head_dim": job.head_dim,
        "dtype": job.dtype,
        "config": {**asdict(job.config), "heads_per_tile": heads},
        **_read_binary(compiled.asm["cubin"]),
        "shared_bytes": compiled.metadata.shared,
        "default": job.default,
    }


def _argument_type(name: str, dtype: str, constants: dict[str, Any]) -> str:
    if name in constants:
        return "constexpr"
    if name in _INT_POINTERS:
        return "*i32"
    if name in _FLOAT_POINTERS:
        return "*fp32"
    if name.startswith("stride_") or name == "n_tokens" or name in _COUNTS:
        return "i32"
    return "fp32" if name.startswith("scale") else f"*{dtype}"


def _read_binary(cubin: bytes) -> dict[str, Any]:
    """Registers, stack, spills and the matrix instruction of one compiled kernel."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        usage = _tool("cuobjdump", "--dump-resource-usage", str(file))
        code = _tool("nvdisasm", "-c", str(file))
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump did not print registers and stack but:\n{usage}")
    return {
        "registers": int(found[1]),
        "stack_bytes": int(found[2]),
        "local_accesses": len(re.findall(r"\b(?:LDL|STL)\b", code)),
        "mma": next((op for op in MATRIX_INSTRUCTIONS if re.search(rf"\b{op}\b", code)), "none"),
    }


def _tool(name: str, *arguments: str) -> str:
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text, one a line."""
    head = "kernel,arch,head dim,dtype,rows×keys,heads,warps,stages,registers,stack B,local,mma"
    cells = [[*head.split(","), "shared KB", "of"]]
    for row in rows:
        config = row["config"]
        line = (
            row["kernel"], f"sm_{row['arch']}", row["head_dim"], row["dtype"],
            f"{config['rows']}×{config['keys']}", config["heads_per_tile"], config["warps"],
            config["stages"], row["registers"], row["stack_bytes"], row["local_accesses"],
            row["mma"], f"{row['shared_bytes'] / 1024:.1f}",
            SHARED_LIMIT[family(row["arch"])] // 1024,
        )  # fmt: skip
        cells.append([str(cell) for cell in line])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arch", type=int, nargs="+", default=list(ARCHS), help="80, 86, 90, 100")
    parser.add_argument(
        "--head-dim", type=int, nargs="+", default=list(HEAD_DIMS), choices=HEAD_DIMS
    )
    parser.add_argument("--dtype", nargs="+", default=["bf16", "fp16"], choices=list(ITEMSIZE))
    parser.add_argument("--kernel", nargs="+", default=list(PASSES), choices=PASSES)
    parser.add_argument("--group", type=int, default=4, help="query heads a key head")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="print a list instead of a table")
    options = parser.parse_args(arguments)
    if os.environ.get("TRITON_INTERPRET") == "1":
        print(
            "TRITON_INTERPRET=1 runs kernels instead of compiling them; unset it", file=sys.stderr
        )
        return 2
    todo = jobs(options.arch, options.head_dim, options.dtype, options.group, options.kernel)
    if options.jobs == 1 or len(todo) == 1:
        rows = [compile_job(job) for job in todo]
    else:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(options.jobs, len(todo)), mp_context=spawn) as pool:
            rows = list(pool.map(compile_job, todo))
    print(json.dumps(rows, indent=1) if options.json else table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
