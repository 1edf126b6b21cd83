"""The Kernels page without a browser: what a job found is shown, whole, in part, or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from packing.sources.load import load
from tests.pages.patience import PATIENCE_S, settled
from tuning.plan.plan import TuningPlan

FRAME = str(Path(__file__).resolve().parents[2] / "pages" / "frame.py")
FIGURE_BUDGET = 300_000
TIME = {"median_ms": 20.0, "p20_ms": 19.0, "p80_ms": 22.0, "n": 5, "tflops": 0.02}
PROBLEM: dict[str, Any] = {
    "type": "problem",
    "reference": "a float64 reference over all 8,136 tokens",
    "tree": 0,
    "trees": 17,
    "tokens": 8136,
    "rows": 28,
    "nodes": 51,
    "mask_area": 3697517,
    "query_heads": 2,
    "key_heads": 1,
    "head_dim": 64,
    "model": "tiny",
    "dtype": "float32",
    "machine": "cpu x86_64, 2 threads",
    "versions": {"torch": "2.13.0"},
}
ERRORS = {"out": 3e-7, "dq": 5e-7, "dk": 4e-7, "dv": 2e-7}
ROWS: list[dict[str, Any]] = [
    {"type": "row", "backend": "triton", "reason": "the Triton kernels need an NVIDIA GPU"},
    {
        "type": "row",
        "backend": "cascade",
        "errors": ERRORS,
        "right": True,
        "visited_area": 3721496,
        "block_efficiency": 0.99,
        "memory_bytes": 26 * 2**20,
        "tile": None,
        "forward": TIME | {"peak_share": None},
        "backward": TIME | {"peak_share": 0.4, "tflops": 400.0},
    },
    {
        "type": "row",
        "backend": "rows",
        "forward": TIME | {"peak_share": None, "median_ms": 50.0},
        "backward": TIME | {"peak_share": None, "median_ms": 50.0},
    },
]
RESULT: dict[str, Any] = {
    "type": "result",
    "equal": True,
    "verdict": "Packed equals row by row over 6,381 predictions.",
    "logprobs": {"maximum": 2e-7, "mean": 3e-8},
    "logprob_tolerance": 1e-5,
    "gradient_tolerance": 1e-5,
    "layers": [{"layer": "layer 0", "maximum": 9e-7, "mean": 1e-8}],
    "folded": True,
    "vocabulary": 1024,
    "sampled": "22 of the 83 rows of 3 of 17 trees",
    "packed_tokens": 4605,
    "row_tokens": 6403,
    "model": "tiny: random weights",
    "seconds": 3.2,
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    st.cache_resource.clear()
    st.cache_data.clear()


def opened(**query: str) -> AppTest:
    app = AppTest.from_file(FRAME, default_timeout=PATIENCE_S)
    for name, value in ({"data": "sample:math-grpo"} | query).items():
        app.query_params[name] = value
    app.run()
    app.switch_page("kernels/page.py").run()
    return settled(app)


@pytest.fixture
def fingerprint(home: Path) -> str:
    """Of the bundled rows that these pages show."""
    return load(TuningPlan().source).rows.fingerprint


def ended_job(
    home: Path,
    data: str,
    kind: str,
    *events: dict[str, Any],
    plan: TuningPlan | None = None,
    **arguments: Any,
) -> None:
    """A job folder as a worker leaves it."""
    folder = home / "jobs" / f"20261130-100000-{kind}"
    folder.mkdir(parents=True)
    question = {
        "kind": kind,
        "plan": (plan or TuningPlan()).to_json(),
        "arguments": {"data": data, "tree": 0, **arguments},
    }
    question["created_at"] = "2026-11-30T10:00:00+00:00"
    (folder / "job.json").write_text(json.dumps(question))
    (folder / "log.txt").write_text("")
    lines = "".join(json.dumps({"at": "2026-11-30T10:00:01+00:00", **e}) + "\n" for e in events)
    (folder / "events.jsonl").write_text(lines)


def texts(app: AppTest) -> str:
    return "\n".join(e.value for e in (*app.markdown, *app.caption, *app.info, *app.error))


def test_an_empty_page_offers_the_proof_and_a_run_and_draws_the_mask() -> None:
    app = opened()
    assert {"Prove it", "Run"} <= {b.label for b in app.button}
    assert "Nothing has been timed yet" in texts(app)
    (tiles,) = app.get("plotly_chart")
    assert "depth-first order" in tiles.proto.spec and len(tiles.proto.spec) < FIGURE_BUDGET
    table = app.dataframe[0].value
    assert table["order"].tolist() == ["AReaL's", "depth-first"]
    assert (table["visited"] == table["full tiles"] + table["partial tiles"]).all()


def test_what_jobs_found_is_there_when_the_page_is_opened(home: Path, fingerprint: str) -> None:
    ended_job(home, fingerprint, "equivalence", RESULT, {"type": "done", "message": ""})
    ended_job(home, fingerprint, "kernels", PROBLEM, *ROWS, {"type": "done", "message": ""})
    app = opened()
    said = texts(app)
    assert "Packed equals row by row over 6,381" in said and "folded into its vocabulary" in said
    assert "Triton (ours)**: the Triton kernels need an NVIDIA GPU." in said
    assert "Made with other settings" not in said
    assert len(app.get("plotly_chart")) == 3
    assert all(len(chart.proto.spec) < FIGURE_BUDGET for chart in app.get("plotly_chart"))
    table = app.dataframe[0].value.set_index("backend")
    cascade = table.loc["cascade (ours)"]
    assert cascade["right"] == "right" and cascade["largest error"] == "5.0e-07 (dq)"
    assert cascade["forward"] == "20 ms (19–22)" and cascade["against rows"] == "2.50×"
    assert "400 TFLOP/s (40% of peak)" in cascade["speed, forward · backward"]
    assert table.loc["Triton (ours)", "forward"] == "—"


def test_results_of_other_settings_say_so(home: Path, fingerprint: str) -> None:
    ended_job(home, fingerprint, "equivalence", RESULT, plan=TuningPlan(max_tokens_per_mb=4096))
    ended_job(
        home,
        fingerprint,
        "kernels",
        PROBLEM | {"tree": 3},
        *ROWS,
        plan=TuningPlan(dtype="bfloat16"),
    )
    said = texts(opened())
    assert "Made with other settings than those now: max_tokens_per_mb." in said
    assert "Made with other settings than those now: dtype." in said
    assert "measured on tree 3" in said


def test_what_was_found_on_other_rows_is_not_shown(home: Path) -> None:
    ended_job(home, "other rows", "equivalence", RESULT)
    ended_job(home, "other rows", "kernels", PROBLEM, *ROWS)
    said = texts(opened())
    assert "Packed equals" not in said and "Nothing has been timed yet" in said


def test_a_wrong_verdict_and_a_failed_job_are_errors(home: Path, fingerprint: str) -> None:
    ended_job(
        home,
        fingerprint,
        "equivalence",
        RESULT | {"equal": False, "verdict": "Packed does not equal."},
    )
    ended_job(home, fingerprint, "kernels", {"type": "failed", "message": "no GPU here"})
    errors = [e.value for e in opened().error]
    assert "Packed does not equal." in errors and "No GPU here." in errors


def test_choosing_a_tree_is_part_of_the_link() -> None:
    app = opened()
    app.number_input(key="kernels.tree").set_value(2).run()
    assert app.query_params["tree"] in ("2", ["2"])
    assert app.number_input(key="kernels.tree").value == 2


def _compile_table(path: str) -> None:
    from pathlib import Path

    from pages.kernels.parts import draw_compile_table

    draw_compile_table(Path(path))


def test_the_compile_table_is_shown_by_architecture(tmp_path: Path) -> None:
    file = tmp_path / "docs" / "compile_table.json"
    missing = AppTest.from_function(_compile_table, args=(str(file),)).run()
    assert missing.code[0].value.endswith("compile_kernels --json > docs/compile_table.json")
    file.parent.mkdir()
    row = {"kernel": "dq", "head_dim": 128, "dtype": "bf16", "config": {"rows": 64, "keys": 32}}
    entries = [row | {"arch": arch, "registers": arch, "mma": "HMMA"} for arch in (80, 90, 100)]
    file.write_text(json.dumps(entries))
    app = AppTest.from_function(_compile_table, args=(str(file),)).run()
    assert not app.exception, app.exception
    assert app.dataframe[0].value["registers"].tolist() == [90]
    assert "rows" in app.dataframe[0].value
    app.segmented_control(key="kernels.arch").set_value(80).run()
    assert app.dataframe[0].value["registers"].tolist() == [80]


def test_a_run_on_a_gpu_is_loaded_and_a_dry_one_refused(home: Path) -> None:
    """Its file is kept, for reports and for the next visit; what was played is no measurement."""
    figures = {"both_ms_p50": 12.5, "both_tflops": 400.0, "share_of_peak": 0.404}
    row = {"provider": "triton", "tree": "agent_32k", **figures}
    machine = {"device": "NVIDIA H200 <b>", "dry_run": False}
    report = {"machine": machine, "attention": [row], "compile": [], "checks": [], "steps": []}
    app = opened()
    (uploader,) = app.file_uploader
    settled(uploader.upload("gpu.json", json.dumps(report).encode(), "application/json").run())
    dry = report | {"machine": machine | {"dry_run": True}}
    assert "NVIDIA H200 <b>" in "".join(text.value for text in app.text)
    (uploader,) = app.file_uploader
    settled(uploader.upload("dry.json", json.dumps(dry).encode(), "application/json").run())
    assert "dry.json is of a dry run" in "".join(text.value for text in app.text)
    later = opened()
    (shown,) = [f.value for f in later.dataframe if "provider" in f.value]
    assert shown["TFLOP/s"].tolist() == ["400"] and shown["of the peak"].tolist() == ["40%"]


def test_rows_longer_than_the_cap_are_refused_in_words() -> None:
    app = opened(cap="128")
    assert any("max_tokens_per" in e.value or "longest" in e.value for e in app.error)


@pytest.mark.process
def test_the_page_needs_no_torch() -> None:
    code = (
        "import sys; import pages.kernels.parts, pages.kernels.table; "
        "sys.exit('torch' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
