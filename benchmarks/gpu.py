"""One run on a GPU machine: are the kernels right, how fast are they, how fast is a whole step.

    python -m benchmarks.gpu [--golden ROWS.npz …] [--budget 460] [--out gpu.json]
    python -m benchmarks.gpu --dry-run

Needs torch, Triton, transformers, numpy, scipy and pandas, nothing else of this project. The second
form goes through every stage on a CPU, on tiny sizes, with the device, its clock and the libraries
that need a GPU played; what it says of times means nothing, and its JSON says so.

Notable:
- each stage is a process of its own, and its rows are on the disk as they come
  (``OUT.rows.jsonl``): an exception, a crash or a hang loses the rest of that stage, nothing else
- first the kernels are compiled, many at once; then they are checked; then the headline trees
- the run stops by itself before ``--budget`` seconds; what there was no time for is in the JSON,
  with that as its reason, and has no figure
- an ``.npz`` holds ``tokens``, ``offsets`` and ``groups`` of rows
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __package__ in (None, ""):
    sys.path.insert(0, str(ROOT))

PACKAGES = ("torch", "triton", "transformers", "numpy", "flash_attn", "flash_attn_3")
# Share of the time that is left which a stage may take at most.
SHARES = {"machine": 0.2, "compile": 0.25, "checks": 0.3, "attention": 0.4, "steps": 0.4}
STARTING_S = 8.0  # what a process needs to start: it is told to stop so long before it is ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all stages; returns 1 where a check or a comparison failed, 2 without a device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dry-run", action="store_true", help="every stage on a CPU, played")
    parser.add_argument("--golden", type=Path, nargs="*", default=[], help="rows to make trees of")
    parser.add_argument("--model", default="qwen3-0.6b", help="preset or config.json of the steps")
    parser.add_argument("--budget", type=float, default=460.0, help="seconds for the whole run")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="where the JSON goes")
    parser.add_argument("--break", dest="faults", nargs="*", default=[], metavar="STAGE=KIND",
                        help="in a dry run: a stage to raise, die or hang")  # fmt: skip
    options = parser.parse_args(arguments)
    if options.faults and not options.dry_run:
        parser.error("--break is for --dry-run")
    rows_file = options.out.with_suffix(".rows.jsonl")
    rows_file.unlink(missing_ok=True)
    end = time.monotonic() + options.budget
    about = _about(options.dry_run)
    for stage in stages(options.golden, options.dry_run):
        _run_stage(stage, options, rows_file, end)
        report = collated(about, read_rows(rows_file))
        options.out.write_text(json.dumps(report, indent=1))
        if stage == "machine" and "device" not in report["machine"]:
            print(f"cannot run: {report['machine'].get('reason')}", file=sys.stderr)
            return 2
    for table in ("compile", "checks", "attention", "steps"):
        print(_table(table, report[table]))
    ran = [row["ok"] for row in report["checks"] if row.get("ok") is not None]
    wrong = [row for row in report["attention"] if "wrong on this tree" in row.get("reason", "")]
    print(f"{sum(ran)} of {len(ran)} checks passed, {len(wrong)} timed trees wrong; {options.out}")
    return 0 if ran and all(ran) and not wrong else 1


def stages(golden: Sequence[Path], dry: bool) -> list[str]:
    """Names of all stages in the order of their worth."""
    trees = ["agent_32k", "prompts_64k"]
    if not dry:
        trees += [f"{path.stem}_{cap}k" for path in golden for cap in (16, 64)]
        trees += ["chain_8k", "prompts_16k", "prompts_8k", "agent_16k"]
    steps = [f"steps:{mode}" for mode in ("tree_triton", "flat_flash", "tree_flex", "flat_triton")]
    timed = [f"attention:{tree}" for tree in trees]
    return ["machine", "compile", "checks", *timed[:2], *steps, *timed[2:]]


def _run_stage(stage: str, options: argparse.Namespace, rows_file: Path, end: float) -> None:
    """Runs a stage to its end, or ends it; adds a row that says why it did not come to its end."""
    left = end - time.monotonic()
    allowed = left * SHARES[stage.split(":")[0]]
    if allowed < 1.0:
        _append(rows_file, {"stage": stage, "reason": "no time left in the budget"})
        return
    wrong = {r["backend"] for r in read_rows(rows_file) if r.get("ok") is False and "backend" in r}
    command = [sys.executable, "-m", "benchmarks.gpu_stage", stage, str(rows_file.resolve())]
    command += ["--seconds", str(max(1.0, allowed - STARTING_S)), "--model", options.model]
    command += ["--golden", *(str(path.resolve()) for path in options.golden)]
    command += ["--wrong", *sorted(wrong)]
    if options.dry_run:
        command.append("--dry-run")
    fault = dict(text.split("=") for text in options.faults).get(stage)
    if fault is not None:
        command += ["--break", fault]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stderr=errors, start_new_session=True)
        try:
            code: int | None = process.wait(timeout=allowed)
        except subprocess.TimeoutExpired:
            code = None
        # Processes of its own may outlive a stage that died.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        errors.seek(0)
        said = errors.read().strip().splitlines()[-1:] or ["no message"]
    if code is None:
        _append(rows_file, {"stage": stage, "reason": f"ended after {allowed:.0f} s"})
    elif code:
        reason = f"its process ended with {code}: {said[0]}"[:300]
        _append(rows_file, {"stage": stage, "reason": reason})


def _append(rows_file: Path, row: dict[str, Any]) -> None:
    whole = rows_file.exists() and rows_file.read_bytes()[-1:] not in (b"", b"\n")
    with rows_file.open("a") as file:
        file.write(("\n" if whole else "") + json.dumps(row) + "\n")


def read_rows(rows_file: Path) -> list[dict[str, Any]]:
    """The rows so far; a line that a dying process left unfinished is no row."""
    rows = []
    for line in rows_file.read_text().splitlines() if rows_file.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def collated(about: dict[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The report: rows by kind of stage, times of attention beside FlexAttention's and flash's."""
    report: dict[str, Any] = {"machine": dict(about), "ended": []}
    report |= {name: [] for name in ("compile", "checks", "attention", "steps")}
    for row in rows:
        stage, rest = row["stage"], {k: v for k, v in row.items() if k != "stage"}
        kind, _, name = stage.partition(":")
        if rest == {"ended": True}:
            report["ended"].append(stage)
        elif kind == "machine":
            report["machine"] |= rest
        elif set(rest) == {"reason"}:  # the stage itself did not come to its end
            of = {"attention": {"tree": name}, "steps": {"mode": name}}.get(kind, {})
            report[kind].append({**of, **rest, "stage_failed": True})
        else:
            report[kind].append(rest)
    by_tree: dict[str, dict[str, dict[str, Any]]] = {}
    for row in report["attention"]:
        by_tree.setdefault(row["tree"], {})[row.get("provider", "")] = row
    for providers in by_tree.values():
        flex, flash = (providers.get(name, {}) for name in ("flex_ours", "flash_rows"))
        flash3 = providers.get("flash_rows_fa3", {})
        for row in providers.values():
            if "both_ms_p50" not in row:
                continue
            if "both_ms_p50" in flex:
                with_masks = (x["both_ms_p50"] + x["mask_ms"] for x in (flex, row))
                row["times_flex"] = flex["both_ms_p50"] / row["both_ms_p50"]
                row["times_flex_with_mask"] = next(with_masks) / next(with_masks)
            for name, other in (("of_flash", flash), ("of_fa3", flash3)):
                if "both_tflops" in other:
                    row[name] = row["both_tflops"] / other["both_tflops"]
    return report


def _about(dry: bool) -> dict[str, Any]:
    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"when": when, "python": platform.python_version(), "dry_run": dry, "packages": packages}


def _table(title: str, rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return f"\n{title}: none"
    head = list(dict.fromkeys(name for row in rows for name in row))
    cells = [head, *([_cell(row.get(name)) for name in head] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    return "\n".join([f"\n{title}", *lines])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e-2 else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


if __name__ == "__main__":
    sys.exit(main())
