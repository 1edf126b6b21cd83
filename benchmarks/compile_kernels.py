"""Compiles the Triton kernels ahead of time, without a GPU, and reads what came out.

Notable:
- what is shown is counted in the machine code (``machine_code``): registers, spills, the matrix
  instruction, instructions an element of the loop of whole tiles
- several releases of Triton, each in an environment of its own (``triton_versions``), in one table
- shapes: 4 query heads a key head by default, tokens and strides multiples of 16

    python -m benchmarks.compile_kernels [--triton 3.5 3.6 3.9] [--arch 90] [--head-dim 128]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.machine_code import read_cubin
from benchmarks.triton_versions import python_with
from kernels.triton.configs import (
    HEAD_DIMS,
    PASSES,
    SHARED_LIMIT,
    Config,
    Pass,
    bushy_config,
    by_descriptor,
    default_config,
    family,
    first_release,
    heads_per_tile,
    triton_version,
)

ROOT = Path(__file__).resolve().parents[1]
FIRST_ARCH = 90  # of the copy engine that reads by descriptors
ARCHS = (80, 90, 100)
KERNELS: tuple[Pass, ...] = (*PASSES, "dqkv")
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
        return self.config in default_configs(
            self.kernel, self.arch, self.head_dim, self.dtype, self.group, self.tma
        )


def default_configs(
    kernel: Pass, arch: int, head_dim: int, dtype: str, group: int, tma: bool
) -> list[Config]:
    """The default of a kernel, and of dK and dV the tile for bushy trees too."""
    chosen = default_config(
        kernel, arch, head_dim, ITEMSIZE[dtype], group, triton_version(), tma and arch >= FIRST_ARCH
    )
    halved = kernel == "dkv" and chosen.keys > 64 and (tma or arch < FIRST_ARCH)
    return [chosen, bushy_config(chosen)] if halved else [chosen]


def _ways(kernel: Pass, arch: int, head_dim: int) -> tuple[bool, ...]:
    """By descriptors or by pointers; the backward of five products is meant for descriptors."""
    if kernel == "dqkv":
        return (True,) if arch >= FIRST_ARCH else ()
    both = arch >= FIRST_ARCH and by_descriptor(kernel, head_dim, arch)
    return (True, False) if both else (False,)


def jobs(
    archs: Sequence[int] = ARCHS,
    head_dims: Sequence[int] = HEAD_DIMS,
    dtypes: Sequence[str] = ("bf16",),
    groups: Sequence[int] = (4,),
    kernels: Sequence[Pass] = KERNELS,
) -> list[CompileJob]:
    """The default configurations of every kernel, by descriptors and by pointers where both are.

    An architecture that the installed release of Triton cannot compile for is left out.
    """
    return [
        CompileJob(kernel, arch, dim, dtype, group, config, tma)
        for arch in archs
        if triton_version() >= (first_release(arch) or (0, 0))
        for dim in head_dims
        for dtype in dtypes
        for kernel in kernels
        for group in groups
        for tma in _ways(kernel, arch, dim)
        for config in default_configs(kernel, arch, dim, dtype, group, tma)
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


COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "triton": lambda row: row["triton"],
    "kernel": lambda row: row["kernel"],
    "arch": lambda row: f"sm_{row['arch']}",
    "D": lambda row: row["head_dim"],
    "dtype": lambda row: row["dtype"],
    "group": lambda row: row["group"],
    "tiles by": lambda row: "descriptor" if row["tma"] else "pointer",
    "rows×keys": lambda row: f"{row['config']['rows']}×{row['config']['keys']}",
    "warps": lambda row: row["config"]["warps"],
    "stages": lambda row: row["config"]["stages"],
    "an element": lambda row: f"{row['per_element']:.1f}",
    "registers": lambda row: row["registers"],
    "stack B": lambda row: row["stack_bytes"],
    "local": lambda row: row["local_accesses"],
    "hot": lambda row: row["hot_local"],
    "fences": lambda row: row["fences"],
    "mma": lambda row: f"{row['mma']} {row['mma_shape'] or ''}".strip(),
    "shared KB": lambda row: f"{row['shared_bytes'] / 1024:.0f}",
    "of": lambda row: SHARED_LIMIT[family(row["arch"])] // 1024,
}


def table(rows: Sequence[dict[str, Any]], markdown: bool = False) -> str:
    """The rows as text, one a line, in Markdown if asked for."""
    cells = [list(COLUMNS), *([str(cell(row)) for cell in COLUMNS.values()] for row in rows)]
    if markdown:
        cells.insert(1, ["---"] * len(COLUMNS))
        return "\n".join(f"| {' | '.join(line)} |" for line in cells)
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--triton", nargs="+", metavar="RELEASE",
                        help="releases to compare; the installed one by default")  # fmt: skip
    parser.add_argument("--arch", type=int, nargs="+", default=list(ARCHS), help="80, 86, 90, 100")
    parser.add_argument(
        "--head-dim", type=int, nargs="+", default=list(HEAD_DIMS), choices=HEAD_DIMS
    )
    parser.add_argument("--dtype", nargs="+", default=["bf16"], choices=list(ITEMSIZE))
    parser.add_argument("--kernel", nargs="+", default=list(KERNELS), choices=KERNELS)
    parser.add_argument("--group", type=int, nargs="+", default=[4], help="query heads a key head")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="print a list instead of a table")
    parser.add_argument("--markdown", action="store_true", help="print a table for Markdown")
    options = parser.parse_args(arguments)
    if os.environ.get("TRITON_INTERPRET") == "1":
        print(
            "TRITON_INTERPRET=1 runs kernels instead of compiling them; unset it", file=sys.stderr
        )
        return 2
    rows = _rows_of_releases(options) if options.triton else _rows(options)
    print(json.dumps(rows, indent=1) if options.json else table(rows, options.markdown))
    return 0


def _rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    todo = jobs(options.arch, options.head_dim, options.dtype, options.group, options.kernel)
    if options.jobs == 1 or len(todo) == 1:
        return [compile_job(job) for job in todo]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(options.jobs, len(todo)), mp_context=spawn) as pool:
        return list(pool.map(compile_job, todo))


def _rows_of_releases(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of every release, those of one kernel side by side."""
    rows: list[dict[str, Any]] = []
    for release in options.triton:
        command: list[Any] = [python_with(release), "-m", "benchmarks.compile_kernels", "--json"]
        for name in ("arch", "head_dim", "dtype", "kernel", "group", "jobs"):
            value = getattr(options, name)
            values = value if isinstance(value, list) else [value]
            command += [f"--{name.replace('_', '-')}", *map(str, values)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        rows += json.loads(done.stdout)
    names = list(KERNELS)
    return sorted(
        rows,
        key=lambda row: (
            row["arch"], row["head_dim"], row["group"], names.index(row["kernel"]), not row["tma"]
        ),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
