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
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.machine_code import read_cubin
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

FIRST_ARCH = 90  # of the copy engine that reads by descriptors
ARCHS = (80, 90, 100)
ITEMSIZE = {"bf16": 2, "fp16": 2, "fp32": 4}
_INT_POINTERS = ("subtree_end", "query_tiles", "runs", "chunks")
_FLOAT_POINTERS = ("lse", "delta", "chunk_sums", "dq_sums")
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
    tma: bool = True

    @property
    def default(self) -> bool:
        return self.kernel != "dqkv" and self.config == default_config(
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

    function = {"forward": forward_kernel, "dq": dq_kernel}.get(job.kernel, dkv_kernel)
    heads = heads_per_tile(job.group, job.config.rows)
    block_d = 1 << (job.head_dim - 1).bit_length()
    keyed = job.kernel in ("forward", "dq")
    tma = job.arch >= FIRST_ARCH and job.tma and (keyed or job.config.rows % heads == 0)
    constants = {
        "GROUP": job.group,
        "PACK": heads,
        "HEAD_DIM": job.head_dim,
        "BLOCK_D": block_d,
        "ROWS": job.config.rows,
        "KEYS": job.config.keys,
        "PRECISION": "ieee" if job.dtype == "fp32" else "tf32",
        "TMA": tma,
        "SPECIALIZE": job.config.specialize,
    }
    if not keyed:
        constants |= {"DQ": job.kernel == "dqkv", "REDUCE": tma and job.kernel == "dqkv"}
    described: dict[str, str] = {}
    if tma:
        block = [1, 1, job.config.keys] if keyed else [1, job.config.rows // heads, heads]
        for name in ("k", "v") if keyed else ("q", "dout"):
            described[name] = f"tensordesc<{job.dtype}{[*block, block_d]}>"
        if job.kernel == "dqkv":
            described["dq_sums"] = f"tensordesc<fp32{[1, job.config.rows, block_d]}>"
    signature: dict[str, str] = {}
    hints: dict[tuple[int], list[list[Any]]] = {}
    for place, name in enumerate(function.arg_names):
        signature[name] = described.get(name) or _argument_type(name, job.dtype, constants)
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
    code = read_cubin(compiled.asm["cubin"])
    elements = job.config.rows * job.config.keys / (32 * job.config.warps)
    return {
        "triton": triton.__version__,
        "kernel": job.kernel,
        "arch": job.arch,
        "head_dim": job.head_dim,
        "dtype": job.dtype,
        "config": {**asdict(job.config), "heads_per_tile": heads},
        "group": job.group,
        "tma": tma,
        **code,
        "per_element": round(code["loop_instructions"] / elements, 2),
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
