"""Tile sizes, warps and pipeline stages of the Triton kernels, by architecture, head dim and dtype.

Notable:
- chosen so that shared memory fits and nothing spills out of registers with Triton 3.5, 3.6 and
  3.9: ``benchmarks/compile_kernels.py`` compiles them with each and reads both out of the machine
  code; ``docs/compile_table.json`` holds what it read, for which architectures and head dims
- from compiled code, not from times: ``tuning.tuned_configs`` tries others on a device
- float32 products are exact ones on the ordinary cores, so its tiles are small
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from typing import Literal

Pass = Literal["forward", "dq", "dkv", "dqkv"]
PASSES: tuple[Pass, ...] = ("forward", "dq", "dkv")
HEAD_DIMS = (64, 96, 128, 256)

# Most shared memory one program can have, in bytes, by the compute capability that sets it
# (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
SHARED_LIMIT = {80: 163 * 1024, 86: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}


@dataclass(frozen=True)
class Config:
    """rows: (token, head) pairs of a query tile; keys: keys of a key tile; both powers of two.

    specialize: loads and products by warps of their own, where Triton can do that.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    specialize: bool = False


# On sm_90 the wide tile takes every register there is: it fits where Triton 3.9 compiles it,
# queries come by descriptors and a tile holds all heads of a group; elsewhere the narrow one is
# taken.
_WIDE_DKV, _NARROW_DKV = Config(64, 128, 8, 2), Config(32, 128, 8, 3)
_WIDE_SINCE = (3, 9)

# A tree is bushy, and dK and dV take half as many keys a tile, where that leaves out so much: such
# a tile's instructions an element are the same, but queries are read twice as often.
BUSHY = 0.9

# (pass, head dim) to the configuration of each family, for two-byte dtypes; 96 takes those of 128,
# whose tiles are as wide.
_HALF: dict[int, dict[tuple[Pass, int], Config]] = {
    80: {
        ("forward", 64): Config(128, 64, 8, 3),
        ("forward", 128): Config(128, 32, 8, 3),
        ("forward", 256): Config(64, 32, 8, 2),
        ("dq", 64): Config(64, 32, 4, 3),
        ("dq", 128): Config(64, 64, 8, 2),
        ("dq", 256): Config(64, 32, 8, 2),
        ("dkv", 64): Config(32, 128, 8, 2),
        ("dkv", 128): Config(64, 64, 8, 2),
        ("dkv", 256): Config(16, 64, 8, 2),
    },
    90: {
        ("forward", 64): Config(128, 128, 8, 2),
        ("forward", 128): Config(128, 128, 8, 2),
        ("forward", 256): Config(128, 64, 8, 2),
        ("dq", 64): Config(128, 64, 8, 3),
        ("dq", 128): Config(128, 64, 8, 3),
        ("dq", 256): Config(128, 32, 8, 2),
        ("dkv", 64): Config(64, 128, 8, 2),
        ("dkv", 128): _WIDE_DKV,
        ("dkv", 256): Config(16, 64, 8, 2),
    },
    100: {
        ("forward", 64): Config(128, 64, 8, 3),
        ("forward", 128): Config(128, 64, 8, 3),
        ("forward", 256): Config(128, 32, 8, 2),
        ("dq", 64): Config(128, 64, 4, 2),
        ("dq", 128): Config(128, 64, 8, 2),
        ("dq", 256): Config(128, 32, 8, 2),
        ("dkv", 64): Config(64, 128, 4, 3),
        ("dkv", 128): Config(64, 128, 8, 2),
        ("dkv", 256): Config(32, 64, 8, 2),
    },
}
# The same matrix instructions, less shared memory.
_HALF[86] = {**_HALF[80], ("dq", 256): Config(64, 32, 8, 1)}

_FLOAT32: dict[tuple[Pass, int], Config] = {
    ("forward", 64): Config(64, 32, 8, 1),
    ("forward", 96): Config(32, 16, 8, 1),
    ("forward", 128): Config(32, 32, 8, 1),
    ("forward", 256): Config(16, 32, 8, 1),
    ("dq", 64): Config(32, 32, 8, 1),
    ("dq", 96): Config(16, 16, 8, 2),
    ("dq", 128): Config(16, 16, 8, 2),
    ("dq", 256): Config(16, 16, 8, 2),
    ("dkv", 64): Config(16, 32, 8, 1),
    ("dkv", 96): Config(16, 32, 8, 1),
    ("dkv", 128): Config(16, 32, 8, 1),
    ("dkv", 256): Config(16, 32, 8, 1),
}

# Where tiles come by pointers, whose registers leave no room for the above. For sm_100 Triton 3.9
# stops on loops over runs of key tiles that load ahead by pointers, so these have one stage.
_POINTERS: dict[int, dict[tuple[Pass, int], Config]] = {
    90: {("forward", 256): Config(128, 32, 8, 2), ("dkv", 256): Config(32, 32, 8, 2)},
    100: {
        ("forward", 64): Config(128, 64, 8, 1),
        ("forward", 96): Config(128, 64, 8, 1),
        ("forward", 128): Config(64, 64, 4, 1),
        ("forward", 256): Config(128, 32, 8, 1),
        ("dq", 64): Config(128, 64, 8, 1),
        ("dq", 96): Config(128, 64, 8, 1),
        ("dq", 128): Config(128, 64, 8, 1),
        ("dq", 256): Config(64, 32, 8, 1),
        ("dkv", 64): Config(64, 128, 4, 2),
    },
}

# The backward of five products, opt-in.
_FUSED = {
    64: Config(64, 128, 8, 2),
    128: Config(32, 128, 8, 1),
    256: Config(32, 32, 8, 1),
}

# In the interpreter a step costs the same whatever its size, so tiles are large.
_INTERPRETER = Config(64, 64, 4, 1)


def family(arch: int) -> int:
    """The tuned architecture whose configurations a compute capability (90 for 9.0) takes.

    8.0 and 8.7 have the A100's shared memory; 8.6, 8.9 and the workstation Blackwells (12.x) have
    99 KB and the same matrix instructions.
    """
    if arch in (80, 87):
        return 80
    if arch < 90 or arch >= 120:
        return 86
    return 90 if arch < 100 else 100


def first_release(arch: int) -> tuple[int, int] | None:
    """The first release of Triton that compiles the kernels for ``arch``; None: all of them do.

    The compiler of 3.5 stops the whole process on loops like ours for sm_100.
    """
    return (3, 6) if family(arch) == 100 else None


@cache
def triton_version() -> tuple[int, int]:
    """Major and minor release of the installed Triton."""
    major, minor = version("triton").split(".")[:2]
    return int(major), int(minor)


def default_config(
    name: Pass,
    arch: int,
    head_dim: int,
    itemsize: int,
    group: int,
    release: tuple[int, int],
    described: bool = True,
) -> Config:
    """The configuration of a pass for ``group`` query heads a key head.

    arch 0 is the interpreter; itemsize is that of the dtype, in bytes; release is Triton's;
    described: whether tiles come by tensor descriptors (on sm_90 and later).
    """
    if arch == 0:
        return _INTERPRETER
    if itemsize == 4:
        return _FLOAT32["dkv" if name == "dqkv" else name, head_dim]
    width = 128 if head_dim == 96 else head_dim
    if name == "dqkv":
        return _FUSED[width]
    chosen = _HALF[family(arch)][name, width]
    if not described:
        chosen = _POINTERS.get(family(arch), {}).get((name, head_dim), chosen)
    if name == "dkv" and family(arch) == 90 and head_dim in (96, 128):
        packed = heads_per_tile(group, chosen.rows) == group and chosen.rows % group == 0
        if release < _WIDE_SINCE or not described or not packed:
            return _NARROW_DKV
    return chosen


def by_descriptor(name: Pass, head_dim: int, arch: int) -> bool:
    """Whether a pass reads by tensor descriptors where it can: where those do not make it spill."""
    return not (name == "dq" and head_dim == 256 and family(arch) == 90)


def bushy_config(config: Config) -> Config:
    """Half the keys and half the warps of a dK and dV tile, but a warp group: as much a thread."""
    return replace(config, keys=config.keys // 2, warps=max(4, config.warps // 2))


def heads_per_tile(group: int, rows: int) -> int:
    """Query heads of one key head that share a tile of ``rows``: the most that divide the group,
    leave 8 tokens at least and, where they do not divide the rows, under a twelfth of them unused.
    """
    fitting = (h for h in range(1, group + 1) if group % h == 0 and 8 * h <= rows)
    return max(heads for heads in fitting if 12 * (rows % heads) < rows)
