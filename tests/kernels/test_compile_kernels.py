"""What the ahead-of-time compiler makes of the kernels' default configurations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

import benchmarks.triton_versions as triton_versions
from benchmarks.compile_kernels import (
    ARCHS,
    KERNELS,
    CompileJob,
    compile_job,
    default_configs,
    jobs,
    main,
    table,
)
from benchmarks.machine_code import read_code
from kernels.triton.configs import HEAD_DIMS, SHARED_LIMIT, Config

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {
    "triton", "kernel", "arch", "head_dim", "dtype", "config", "group", "tma", "registers",
    "stack_bytes", "local_accesses", "hot_local", "mma", "mma_shape", "loop_instructions",
    "per_element", "fences", "bulk_loads", "reductions", "shared_bytes", "default",
}  # fmt: skip
TABLE = ROOT / "docs" / "compile_table.json"


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    """The defaults for head dim 128 in bfloat16, compiled by the command in a clean process."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "benchmarks.compile_kernels", "--json", "--jobs", "1"]
    command += ["--head-dim", "128", "--arch", "80", "90"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_every_kernel_is_compiled(compiled: list[dict[str, Any]]) -> None:
    assert {(row["kernel"], row["arch"]) for row in compiled} == {
        (kernel, arch) for kernel in KERNELS for arch in (80, 90) if (kernel, arch) != ("dqkv", 80)
    }
    assert all(set(row) == FIELDS and row["default"] for row in compiled)


def test_nothing_spills(compiled: list[dict[str, Any]]) -> None:
    for row in compiled:
        assert row["stack_bytes"] == 0 and row["local_accesses"] == 0, row
        assert 32 < row["registers"] <= 255


def test_descriptors_are_the_copy_engines(compiled: list[dict[str, Any]]) -> None:
    for row in compiled:
        assert (row["bulk_loads"] > 0) == row["tma"], row
        assert (row["reductions"] > 0) == (row["kernel"] == "dqkv"), row
        if row["tma"] and row["kernel"] in ("forward", "dq", "dkv"):
            assert row["fences"] <= 1, row


def test_nothing_spills_in_the_table_of_three_releases() -> None:
    """The committed table holds all defaults of each release, and none of them spills."""
    rows = json.loads(TABLE.read_text())
    for release in triton_versions.RELEASES:
        own = {
            (row["kernel"], row["arch"], row["head_dim"])
            for row in rows
            if row["triton"].startswith(release)
        }
        assert own == {
            (kernel, arch, dim)
            for arch in ARCHS
            for dim in HEAD_DIMS
            for kernel in KERNELS
            if (kernel, arch) != ("dqkv", 80) and (release, arch) != ("3.5", 100)
        }
    for row in rows:
        assert row["stack_bytes"] == 0 and row["local_accesses"] == 0, row
        assert row["shared_bytes"] <= SHARED_LIMIT[row["arch"]], row


def test_the_guide_shows_the_figures_of_the_table() -> None:
    rows = json.loads(TABLE.read_text())
    names = {"forward": "forward", "dQ": "dq", "dK/dV": "dkv", "five products": "dqkv"}
    seen = set()
    for line in (ROOT / "docs" / "kernels.md").read_text().splitlines():
        if not line.startswith("| sm_"):
            continue
        arch, dim, kernel, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        of = int(arch[3:]), int(dim), names[kernel]
        seen.add(of)
        now = cells[1::2] if len(cells) == 6 else cells  # "before" stands beside "after" or not
        for release, cell in zip(triton_versions.RELEASES, now, strict=True):
            own = [
                row
                for row in rows
                if (row["arch"], row["head_dim"], row["kernel"]) == of
                and row["triton"].startswith(release)
            ]
            row = max(own, key=lambda r: (r["tma"], r["config"]["keys"]), default=None)
            figures = row and (f"{row['per_element']:.1f}", row["registers"], row["local_accesses"])
            expected = " · ".join(map(str, figures)) if figures else "–"
            assert cell.replace("*", "") == expected, line
    assert seen == {(row["arch"], row["head_dim"], row["kernel"]) for row in rows}


def test_the_table_shows_the_tiles_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in json.loads(TABLE.read_text()):
        major, minor = row["triton"].split(".")[:2]
        monkeypatch.setattr(
            "benchmarks.compile_kernels.triton_version", lambda m=major, n=minor: (int(m), int(n))
        )
        shown = Config(**{k: v for k, v in row["config"].items() if k != "heads_per_tile"})
        chosen = default_configs(
            row["kernel"], row["arch"], row["head_dim"], row["dtype"], row["group"], row["tma"]
        )
        assert shown in chosen, row


CODE = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24 ;
        /*0020*/                   FADD R3, R3, R4 ;
        /*0030*/                   STL [R1], R3 ;
        /*0040*/              @P0  BRA `(.L_x_1) ;
.L_x_2:
        /*0050*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24 ;
        /*0060*/                   FENCE.VIEW.ASYNC.S ;
        /*0070*/                   @!P1 LDL R3, [R1] ;
        /*0080*/                   FADD R3, R3, R4 ;
        /*0090*/                   FADD R3, R3, R4 ;
        /*00a0*/                   @P0 BRA `(.L_x_2) ;
        /*00b0*/                   UTMAREDG.2D.ADD [UR8], [UR4] ;
        /*00c0*/                   EXIT ;
"""


def test_the_hot_loop_is_found_in_machine_code() -> None:
    found = read_code(CODE)
    assert found == {
        "local_accesses": 2, "mma": "HGMMA", "mma_shape": "64x128x16", "loop_instructions": 4,
        "hot_local": 1, "fences": 0, "bulk_loads": 0, "reductions": 1,
    }  # fmt: skip


def test_an_environment_is_whole_or_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[str] = []
    fails = True

    def pip(command: list[Any], **options: Any) -> None:
        installed.append(str(command[-1]))
        if fails:
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", pip)
    monkeypatch.setattr(venv, "create", lambda home, **options: Path(home).mkdir(exist_ok=True))
    with pytest.raises(subprocess.CalledProcessError):
        triton_versions.python_with("3.5", tmp_path)
    fails = False
    python = triton_versions.python_with("3.5", tmp_path)
    assert triton_versions.python_with("3.5", tmp_path) == python
    assert installed == ["triton==3.5.*", "triton==3.5.*"]


def test_releases_stand_in_one_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr("benchmarks.compile_kernels.python_with", lambda release: sys.executable)
    few = ["--arch", "80", "--head-dim", "64", "--kernel", "forward", "dq", "--jobs", "1"]
    assert main(["--triton", "3.9", "3.9", *few, "--markdown"]) == 0
    head, line, *rows = capsys.readouterr().out.strip().splitlines()
    assert head.startswith("| triton | kernel") and set(line) <= set("|- ")
    kernels = [row.split("|")[2].strip() for row in rows]
    assert kernels == ["forward", "forward", "dq", "dq"]


def test_matrix_products_use_the_architectures_own_instruction(
    compiled: list[dict[str, Any]],
) -> None:
    for row in compiled:
        assert row["mma"] == {80: "HMMA", 90: "HGMMA"}[row["arch"]], row


def test_shared_memory_fits(compiled: list[dict[str, Any]]) -> None:
    for row in compiled:
        assert 16 * 1024 < row["shared_bytes"] <= SHARED_LIMIT[row["arch"]], row


def test_the_table_has_a_line_for_every_kernel(compiled: list[dict[str, Any]]) -> None:
    head, *lines = table(compiled).splitlines()
    assert "registers" in head and len(lines) == len(compiled)
    assert sum("HGMMA 64x" in line for line in lines) == sum(r["arch"] == 90 for r in compiled)


def test_spills_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile far too large for its warps must show up as spills, or the table shows nothing."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    row = compile_job(CompileJob("forward", 80, 128, "bf16", 4, Config(128, 64, 4, 3)))
    assert row["stack_bytes"] > 0 and row["local_accesses"] > 0 and not row["default"]


def test_jobs_are_the_defaults() -> None:
    listed = jobs(archs=[90], head_dims=[64, 128], dtypes=["bf16"], groups=[8])
    assert {job.kernel for job in listed} == set(KERNELS) and all(job.default for job in listed)
    assert {job.tma for job in listed if job.kernel != "dqkv"} == {True, False}


def test_the_interpreter_cannot_compile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert main(["--arch", "90"]) == 2
    assert "unset it" in capsys.readouterr().err
