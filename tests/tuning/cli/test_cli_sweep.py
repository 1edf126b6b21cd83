"""The sweep from a terminal: the JSON that scripts read, the same history, errors as sentences."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.tuning.sweep_cases import grpo_rows
from tuning.cli import app
from tuning.cli.sweep import seconds_of
from tuning.jobs.files import save_rows
from tuning.jobs.points import Point, Question
from tuning.jobs.store import Store
from tuning.plan.plan import TuningPlan

ROOT = Path(__file__).resolve().parents[3]
runner = CliRunner()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


@pytest.fixture
def rows_file(tmp_path: Path) -> str:
    import numpy as np

    rows = grpo_rows(groups=4, samples=3)
    path = tmp_path / "rows.npz"
    np.savez(path, tokens=rows.tokens, offsets=rows.offsets, groups=rows.group)
    return str(path)


def ask(*words: str) -> str:
    done = runner.invoke(app, list(words))
    assert done.exit_code == 0, (done.stdout, done.stderr)
    return done.stdout


def test_sweep_measure_and_history_share_one_store(rows_file: str, tmp_path: Path) -> None:
    command = ["sweep", rows_file, "--caps", "256,512", "--budget", "1h", "--json"]
    result = json.loads(ask(*command))
    assert {"points", "baselines", "pick", "holdout_error"} <= set(result)
    for point in result["points"]:
        assert {
            "max_tokens_per_mb", "n_trees", "tree_token_ratio", "padded_token_ratio", "fits",
            "step_s", "step_kind", "memory_bytes", "memory_kind",
        } <= set(point)  # fmt: skip
        assert point["step_kind"] == point["memory_kind"] == "measured"
        assert point["fits"] is True and point["step_s"] > 0
        assert 0 < point["logp_low_s"] <= point["logp_s"] <= point["logp_high_s"]
    assert {"flat", "padded"} == set(result["baselines"])
    pick = result["pick"]
    assert pick["mode"] in ("tree", "flat", "padded") and pick["reason"]
    flat = result["baselines"]["flat"]["step_s"]
    assert pick["speedup_vs_flat"] == pytest.approx(flat / pick["step_s"])

    again = json.loads(ask(*command))
    assert all(point["known_from"] for point in again["points"])

    one = json.loads(ask("measure", rows_file, "--cap", "256", "--budget", "1h", "--json"))
    assert [p["question"]["max_tokens_per_mb"] for p in one["points"]] == [256]
    runs = json.loads(ask("history", "list", "--json"))["runs"]
    assert len(runs) == 2, "the second sweep measured nothing"
    compared = json.loads(ask("compare", runs[1]["run"], runs[0]["run"], "--json"))
    by_cap = {p["max_tokens_per_mb"]: p for p in compared["caps"] if p["mode"] == "tree"}
    assert by_cap[256]["ratio"] > 0 and by_cap[512]["ratio"] is None
    table = tmp_path / "history.parquet"
    ask("history", "export", str(table))
    assert pq.read_table(table).num_rows == len(Store().entries())


def test_several_batches_are_counted_and_shown(rows_file: str) -> None:
    words = ["sweep", rows_file, "--caps", "256,512", "--budget", "1h", "--prompts", "2"]
    result = json.loads(ask(*words, "--json"))
    assert result["n_batches"] == 2
    assert result["measured_batch"] == "the first of 2 batches (groups 0 to 1)"
    for point in result["points"]:
        assert point["worst_n_trees"] >= point["mean_n_trees"] > 0
        assert point["worst_n_trees"] >= point["n_trees"]
        assert point["worst_padded_token_ratio"] >= point["mean_padded_token_ratio"] > 0
        assert point["worst_memory_bytes"] >= point["memory_bytes"]
    table = ask(*words)
    assert "compute_logp" in table and table.count("worst") >= 2
    assert "Steps are measured on the first of 2 batches (groups 0 to 1)" in table


def test_a_measured_cap_is_told_in_a_line(rows_file: str) -> None:
    told = ask("measure", rows_file, "--cap", "256", "--budget", "1h", "--dp", "2")
    assert told.startswith("tree · measured · ") and "s a step" in told
    assert "s compute_logp" in told
    assert "the slowest of 2 ranks, run alone on one device" in told


def test_sweep_and_measure_take_the_same_options() -> None:
    import typer.main

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = {
        name: {o for p in commands[name].params for o in p.opts} for name in ("sweep", "measure")
    }
    estimates = {"--gpu-run", "--timed"}
    assert options["sweep"] - options["measure"] == {"--caps"} | estimates
    assert options["measure"] - options["sweep"] == {"--layout", "--way"}
    assert {"rows", "--dp", "--model", "--prompts", "--gradient-checkpointing"} <= options["sweep"]


def test_a_gpu_that_is_not_here_is_estimated_and_says_so(rows_file: str) -> None:
    result = json.loads(
        ask("sweep", rows_file, "--dtype", "bfloat16", "--device", "gpu:100:1000:80", "--json")
    )
    assert result["holdout_error"] is None and "not measured" in result["machine"]
    for point in result["points"]:
        assert point["step_kind"] == point["memory_kind"] == "estimated"
        assert point["low_s"] < point["step_s"] < point["high_s"]
    assert "(estimated)" in result["pick"]["reason"]
    assert Store().entries() == [], "an estimate is no history"


def test_what_fits_follows_the_step(rows_file: str) -> None:
    """AReaL's masks at 131,072 tokens need more than an H100 has; with Espalier inside it fits."""
    words = ["sweep", rows_file, "--device", "h100-80", "--model", "qwen3-1.7b", "--dtype"]
    words += ["bfloat16", "--gradient-checkpointing", "--dp", "2", "--caps", "16384,131072"]
    steps = {}
    for step in ("areal", "areal-espalier"):
        result = json.loads(ask(*words, "--step", step, "--json"))
        assert {p["step_of"] for p in result["points"]} == {step} == {result["step_of"]}
        steps[step] = {p["max_tokens_per_mb"]: p for p in result["points"]}
    large = steps["areal"][131072]
    assert large["fits"] is False and large["step_s"] is None
    assert "dense mask and create_block_mask, 176" in large["message"]
    assert all(p["fits"] for p in steps["areal-espalier"].values())
    assert steps["areal"][16384]["memory_bytes"] > steps["areal-espalier"][16384]["memory_bytes"]


def test_a_grid_of_models_gpus_and_caps(rows_file: str, tmp_path: Path) -> None:
    words = ["whatif", rows_file, "--models", "tiny,small", "--gpus", "l40s,h100-80"]
    words += ["--caps", "256,512"]
    grid = json.loads(ask(*words, "--json"))["grid"]
    assert [(one["model"], one["gpu"]) for one in grid] == [
        (model, gpu) for model in ("tiny", "small") for gpu in ("l40s", "h100-80")
    ]
    for one in grid:
        for point in one["sweep"]["points"]:
            assert point["low_s"] <= point["step_s"] <= point["high_s"]
    lines = ask(*words).splitlines()
    assert len(lines) == 8 and lines[0].startswith("tiny · l40s · AReaL as it is · 256 · ")
    run: dict[str, Any] = {
        "machine": {"device": "NVIDIA H100 80GB HBM3", "dry_run": False},
        "attention": [{"provider": "flex_ours", "both_ms_p50": 1000.0}],
    }
    run["attention"][0] |= {"area": 10**6, "heads": 1, "head_dim": 64}
    run |= {name: [] for name in ("compile", "checks", "steps")}
    (tmp_path / "gpu.json").write_text(json.dumps(run))
    slow = json.loads(ask(*words, "--gpu-run", str(tmp_path / "gpu.json"), "--json"))["grid"]
    for one, other in zip(slow, grid, strict=True):
        for a, b in zip(one["sweep"]["points"], other["sweep"]["points"], strict=True):
            assert a["step_s"] > 10 * b["step_s"], "attention at a millionth of the peak"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--budget", "soon"], "--budget soon: write a time such as 90s, 10m or 1h"),
        (["--caps", "a,b"], "caps must be whole numbers, separated by commas."),
        (["--caps", "300"], "choose a multiple of 128"),
        (["--dtype", "int4"], "dtype is 'int4'; choose one of float32, bfloat16."),
        (["--model", "no-such"], "model 'no-such' is neither a preset"),
        (["--step", "areal"], "FlexAttention has no backward pass"),
        (["--step", "areal-espalier"], "--areal-python (scripts/areal_env makes one)"),
        (["--step", "areal", "--packer", "prefix-aware"], "choose step areal-espalier"),
        (["--areal-python", "/no/such/python"], "/no/such/python is no Python that runs"),
        (["--timed", "soon"], "write CAP=SECONDS, such as 16384=41.5"),
        (["--device", "gpu:fast"], "a GPU of one's own is gpu:TFLOPS:GB_PER_S:GIB"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(
    rows_file: str, words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ESPALIER_AREAL_PYTHON", raising=False)
    done = runner.invoke(app, ["sweep", rows_file, *words])
    assert done.exit_code == 1
    assert sentence in done.stderr and "Traceback" not in done.stderr


def test_times_are_read_in_seconds_minutes_and_hours() -> None:
    assert [seconds_of(t) for t in ("90s", "10m", "1.5h", "45")] == [90, 600, 5400, 45]


def stored(run: str, cap: int, step_s: float) -> None:
    plan = TuningPlan(max_tokens_per_mb=cap)
    question = Question.of(plan, "tree", cap, "d" * 16, "cpu", "0")
    point = Point(question, "measured", step_s=step_s, measured_at="2026-01-01T00:00:00+00:00")
    Store().add(run, plan, point)


def test_history_lists_exports_and_deletes(tmp_path: Path) -> None:
    for run, cap, step_s in (("a", 256, 2.0), ("a", 512, 1.0), ("a", 512, 1.2), ("b", 512, 1.8)):
        stored(run, cap, step_s)
    runs = json.loads(ask("history", "list", "--json"))["runs"]
    assert [(r["run"], r["fastest_cap"], r["fastest_step_s"]) for r in runs] == [
        ("b", 512, 1.8),
        ("a", 512, 1.2),
    ], "a newer time replaces an older one"
    file = tmp_path / "h.csv"
    ask("history", "export", str(file), "--run", "a")
    lines = file.read_text().splitlines()
    assert len(lines) == 4 and "step_s" in lines[0] and "max_tokens_per_mb" in lines[0]
    ask("history", "delete", *map(str, runs[0]["ids"]))
    assert {e.run for e in Store().entries()} == {"a"}
    for words, sentence in (
        (["export", str(tmp_path / "h.xls")], "written as .csv or .parquet"),
        (["delete", "99"], "no point has the id 99"),
    ):
        done = runner.invoke(app, ["history", *words])
        assert done.exit_code == 1 and sentence in done.stderr


@pytest.mark.process
def test_commands_without_steps_import_no_torch_and_none_imports_a_page(rows_file: str) -> None:
    code = (
        "import sys\n"
        "from tuning.cli import app\n"
        "try:\n    app(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "found = {'torch', 'streamlit', 'plotly', 'datasets'} & set(sys.modules)\n"
        "print('imported:', sorted(found), file=sys.stderr)\n"
    )
    for words in (["pack", rows_file, "--cap", "256"], ["history", "list"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        )
        assert "imported: []" in done.stderr


def test_rows_survive_the_way_to_the_worker(tmp_path: Path) -> None:
    from tuning.jobs.files import load_rows

    rows = grpo_rows()
    save_rows(tmp_path / "rows.npz", rows)
    assert load_rows(tmp_path / "rows.npz").fingerprint == rows.fingerprint
