"""One run on a GPU machine: are the kernels right, how fast are they, how fast is a whole step.

    python -m benchmarks.gpu [--golden ROWS.npz …] [--budget 460] [--out gpu.json]
    python -m benchmarks.gpu --check-only --device cpu

Needs torch, Triton, transformers, numpy, scipy and pandas, nothing else of this project. The second
form proves the kernels without a GPU, in Triton's interpreter, on tiny sizes.

Notable:
- checks come first: a kernel that is wrong is not timed, and the run ends with exit code 1
- the run stops by itself before ``--budget`` seconds; what there was no time for is in the JSON,
  with that as its reason, and has no figure
- an ``.npz`` holds ``tokens``, ``offsets`` and ``groups`` of rows
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

PACKAGES = ("torch", "triton", "transformers", "numpy")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the stages that ``arguments`` ask for; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--check-only", action="store_true", help="no times")
    parser.add_argument("--golden", type=Path, nargs="*", default=[], help="rows to make trees of")
    parser.add_argument("--model", default="qwen3-0.6b", help="preset or config.json of the steps")
    parser.add_argument("--budget", type=float, default=460.0, help="seconds for the whole run")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="where the JSON goes")
    options = parser.parse_args(arguments)
    if options.device == "cpu" and not options.check_only:
        parser.error("a CPU's times say nothing about a GPU: add --check-only")
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, which is below
    end = time.monotonic() + options.budget
    try:
        report = _run(options, end)
    except RuntimeError as error:
        print(f"cannot run: {error}", file=sys.stderr)
        return 2
    options.out.write_text(json.dumps(report, indent=1))
    for stage in ("checks", "attention", "steps"):
        print(_table(stage, report[stage]))
    ran = [row["ok"] for row in report["checks"] if row["ok"] is not None]
    left = len(report["checks"]) - len(ran)
    print(f"{sum(ran)} of {len(ran)} checks passed, {left} cannot run here; see {options.out}")
    return 0 if all(ran) else 1


def _run(options: argparse.Namespace, end: float) -> dict[str, Any]:
    import torch

    from benchmarks.gpu_checks import check_backends

    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("torch sees no CUDA device; --check-only --device cpu needs none")
    start = time.monotonic()
    report: dict[str, Any] = {"machine": _machine(device), "attention": [], "steps": []}
    report["checks"] = check_backends(device)
    if not options.check_only:
        from benchmarks.gpu_attention import time_attention
        from benchmarks.gpu_steps import time_steps
        from benchmarks.gpu_trees import golden_trees, synthetic_trees

        trees = [*golden_trees(options.golden), *synthetic_trees()]
        wrong = {row["backend"] for row in report["checks"] if row["ok"] is False}
        # A quarter of the time is kept for whole steps.
        report["attention"] = time_attention(trees, device, wrong, end - options.budget / 4)
        report["steps"] = time_steps(options.model, options.golden, device, wrong, end)
    report["seconds"] = time.monotonic() - start
    return report


def _machine(device: Any) -> dict[str, Any]:
    import torch

    about: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {},
    }
    for name in PACKAGES:
        try:
            about["packages"][name] = version(name)
        except PackageNotFoundError:
            about["packages"][name] = None
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        about["device"] = properties.name
        about["capability"] = f"{properties.major}.{properties.minor}"
        about["memory_bytes"] = properties.total_memory
        about["cuda"] = torch.version.cuda
    else:
        about["device"] = "CPU, Triton's interpreter"
    return about


def _table(title: str, rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return f"{title}: none"
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
