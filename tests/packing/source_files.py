"""Files in the shapes of real rollout logs, made by the tests that read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from packing.sources.load import load_here
from packing.sources.loaded import Loaded
from packing.sources.spec import SourceSpec


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has an empty cache of its own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ESPALIER_CACHE", str(folder))
    return folder


def write_lines(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return path


def read(path: Path, **settings: Any) -> Loaded:
    """The rows of a file, by default settings but for ``settings``."""
    return load_here(SourceSpec("file", str(path), **settings))


def tokens(loaded: Loaded) -> list[list[int]]:
    return [row.tolist() for row in loaded.rows]


def texts(loaded: Loaded) -> list[str]:
    return [loaded.rows.text(row) for row in loaded.rows]


def tool_talk(task: int, trial: int, turns: int = 3) -> dict[str, Any]:
    """A record as tau-bench logs them: tool calls with JSON text and no content."""
    traj: list[dict[str, Any]] = [
        {"role": "system", "content": "# Policy\nBe brief."},
        {"role": "user", "content": f"Order {task}?"},
    ]
    for n in range(turns - 1):
        call = {"name": "get_order", "arguments": json.dumps({"id": f"{task}-{trial}-{n}"})}
        traj += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "name": "get_order", "content": "shipped"},
        ]
    traj.append({"role": "assistant", "content": f"It was shipped, try {trial}."})
    return {"task_id": task, "trial": trial, "reward": float(trial), "info": {"x": 1}, "traj": traj}


def gsm8k_record(n: int) -> dict[str, Any]:
    names = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
    solutions = {
        name: {"solution": f"So {n} by {name}.\nA: {n + i}", "is_correct": i == 0}
        for i, name in enumerate(names)
    }
    return {"question": f"What is {n}?", "ground_truth": f"It is {n}.\nA: {n}", **solutions}
