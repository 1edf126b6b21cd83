"""What the ahead-of-time compiler makes of the kernels' default configurations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compile_kernels import ARCHS, CompileJob, compile_job, jobs, main, table
from kernels.triton.configs import PASSES, SHARED_LIMIT, Config

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {
    "kernel", "arch", "head_dim", "dtype", "config", "registers", "stack_bytes", "local_accesses",
    "mma", "shared_bytes", "default",
}  # fmt: skip


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    """The defaults for head dim 128 in bfloat16, compiled by the command in a clean process."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "benchmarks/compile_kernels.py", "--json", "--jobs", "1"]
    command += ["--head-dim", "128", "--dtype", "bf16"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_every_kernel_is_compiled_for_every_architecture(compiled: list[dict[str, Any]]) -> None:
    assert {(row["kernel"], row["arch"]) for row in compiled} == {
        (kernel, arch) for kernel in PASSES for arch in ARCHS
    }
    assert all(set(row) == FIELDS and row["default"] for row in compiled)


def test_nothing_spills(compiled: list[dict[str, Any]]) -> None:
    for row in compiled:
        assert row["stack_bytes"] == 0 and row["local_accesses"] == 0, row
        assert 32 < row["registers"] <= 255


def test_matrix_products_use_the_architectures_own_instruction(
    compiled: list[dict[str, Any]],
) -> None:
    for row in compiled:
        assert row["mma"] == {80: "HMMA", 90: "HGMMA", 100: "UTCHMMA"}[row["arch"]], row


def test_shared_memory_fits(compiled: list[dict[str, Any]]) -> None:
    for row in compiled:
        assert 16 * 1024 < row["shared_bytes"] <= SHARED_LIMIT[row["arch"]], row


def test_the_table_has_a_line_for_every_kernel(compiled: list[dict[str, Any]]) -> None:
    head, *lines = table(compiled).splitlines()
    assert "registers" in head and len(lines) == len(compiled)
    assert sum("UTCHMMA" in line for line in lines) == len(PASSES)


def test_spills_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile far too large for its warps must show up as spills, or the table shows nothing."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    row = compile_job(CompileJob("forward", 80, 128, "bf16", 4, Config(128, 64, 4, 3)))
    assert row["stack_bytes"] > 0 and row["local_accesses"] > 0 and not row["default"]


def test_jobs_are_the_defaults() -> None:
    listed = jobs(archs=[90], head_dims=[64, 128], dtypes=["bf16"], group=8)
    assert len(listed) == 2 * len(PASSES) and all(job.default for job in listed)


def test_the_interpreter_cannot_compile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert main(["--arch", "90"]) == 2
    assert "unset it" in capsys.readouterr().err
