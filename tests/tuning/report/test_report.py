"""The report: complete, offline, escaped, every figure marked; its tables and figures as files."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from packing.batch.pipeline import simulate
from packing.batch.spec import BatchSpec, Packer
from packing.prefixes import PrefixOrder
from packing.rows import Rows
from packing.sources.spec import SourceSpec
from tests.app import ROOT
from tests.packing.strategies import any_rows
from tests.tuning.workspaces import PLAN, point, rows, sweep, workspace
from tuning.cli import report as commands
from tuning.measure.gpu_run import GpuRun
from tuning.plan.picture import MAX_BANDS, batch_picture
from tuning.report import figures_of, render_report, tables_of, write_figures, write_tables, zipped
from tuning.report.tables import step_of
from tuning.sweep.result import Pick
from tuning.workspace.file import save_workspace
from tuning.workspace.workspace import SavedPoint, Workspace, WorkspaceError

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\x00"


class _Parsed(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "wbr", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def evil_workspace() -> Workspace:
    """Every text that comes from outside tries to be markup."""
    plan = replace(PLAN, source=SourceSpec("file", EVIL.replace("\0", "")), model=EVIL)
    own = replace(rows(), decoder=lambda ids: EVIL + str(list(ids)[:3]))
    one = replace(
        point("tree", 512, 1.0, own.fingerprint, plan),
        message=EVIL,
        notes=(EVIL,),
        versions={EVIL: EVIL},
        memory_kind=EVIL,
    )
    pick = Pick("tree", 512, EVIL, 2.0, 1.0, "measured", EVIL, (EVIL,))
    made = workspace(plan=plan, own=own)
    assert made.provenance is not None
    return replace(
        made,
        points=(SavedPoint(EVIL, plan, one),),
        sweep=replace(sweep(pick), machine=EVIL, memory_note=EVIL, notes=(EVIL,)),
        provenance=replace(made.provenance, format=EVIL, tokenizer=EVIL, notes=(EVIL,)),
        versions={EVIL: EVIL},
        notes=(EVIL,),
    )


def test_it_says_all_that_a_team_asks() -> None:
    parsed = _Parsed(render_report(workspace()))
    assert not parsed.open
    for heading in (
        "The question",
        "The data, and what trees make of it",
        "The pick, and why",
        "Before and after",
        "Memory",
        "Evidence",
        "Config",
        "Doctor",
        "How to reproduce",
    ):
        assert heading in parsed.text, heading
    for said in (
        "512 is the fastest.",  # the reason
        "enable_tree_training: true",
        "python -m tuning pack rollouts.jsonl --cap 512",
        "python -m tuning report run1",
        "median error is 4.0%",
        "needs 99.00 GiB",
        "cpu x86, 2 threads",
        "2026-11-30 10:00:00 UTC",
        "torch 2.13.0",
    ):
        assert said in parsed.text, said
    assert parsed.tags.count("svg") == 2


def test_it_needs_nothing_from_elsewhere() -> None:
    html = render_report(workspace())
    parsed = _Parsed(html)
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(parsed.tags)
    assert not [n for n, _ in parsed.attributes if n in ("src", "href") or n.startswith("on")]
    urls = set(re.findall(r"https?://[^\"' <]+", html))
    assert urls <= {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in html and len(html) < 80_000


@pytest.mark.parametrize("with_text", [True, False])
def test_text_from_outside_is_never_markup(with_text: bool) -> None:
    html = render_report(evil_workspace(), with_text=with_text)
    parsed = _Parsed(html)
    assert "script" not in parsed.tags and "img" not in parsed.tags
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert "alert(1)" in parsed.text
    assert "\x00" not in html and "\u202e" not in html


def test_a_run_on_a_gpu_has_a_section_and_its_words_are_never_markup() -> None:
    row = {"provider": EVIL, "tree": EVIL, "tokens": 32_000, "head_dim": 128, "heads": 32}
    times = {"both_ms_p50": 12.5, "area": 10**8, "kernel_dq_ms": 4.0, "kernel_dq_tile": EVIL}
    rows = [row | times, row | {"reason": EVIL}]
    run = GpuRun({"device": "NVIDIA H200", "when": EVIL}, [], [], rows, [])
    parsed = _Parsed(render_report(workspace(), gpu_run=run))
    assert "Attention on a GPU" in parsed.text and "12.500" in parsed.text
    assert "benchmarks.gpu on NVIDIA H200" in parsed.text and not parsed.open
    assert "script" not in parsed.tags and "img" not in parsed.tags
    assert "Attention on a GPU" not in render_report(workspace())


def with_a_break() -> Workspace:
    """Rows that part at one token and go on alike."""
    lists = [[7] * 30 + [100 + i] + list(range(200, 320)) for i in range(6)]
    own = Rows.from_lists(lists, [0] * 6)
    words = replace(own, decoder=lambda ids: " ".join(f"word{i}" for i in ids))
    return Workspace.of(PLAN, words)


def test_text_of_the_dataset_appears_only_if_asked_for() -> None:
    made = with_a_break()
    assert "word" not in render_report(made)
    shown = render_report(made, with_text=True)
    assert "word100" in shown and "Samples of the text" in shown
    with pytest.raises(WorkspaceError, match="no text can be shown"):
        render_report(replace(made, rows=None), with_text=True)
    with pytest.raises(WorkspaceError, match="no tokenizer is known"):
        render_report(workspace_without_tokenizer(), with_text=True)


def workspace_without_tokenizer() -> Workspace:
    made = workspace()
    assert made.provenance is not None
    return replace(made, provenance=replace(made.provenance, tokenizer=None))


def test_every_time_says_how_it_is_known() -> None:
    for table in tables_of(workspace()):
        for row in table.rows:
            for name, cell in zip(table.columns, row, strict=True):
                if isinstance(cell.value, float):
                    assert cell.kind in ("exact", "measured", "estimated"), (table.name, name)


def test_a_point_that_does_not_fit_has_no_speed() -> None:
    (candidates,) = (t for t in tables_of(workspace()) if t.name == "candidates")
    row = dict(zip(candidates.columns, candidates.rows[-1], strict=True))
    assert row["step s"].value is None and row["tokens/s"].value is None
    assert "does not fit" in row["remark"].text


def test_where_trees_lose_no_tree_config_is_exported() -> None:
    pick = Pick("flat", 512, "Do not enable tree training on these rows.", 1.0, 1.0, "measured")
    parsed = _Parsed(render_report(replace(workspace(), sweep=sweep(pick))))
    assert "Do not enable tree training" in parsed.text
    assert "Leave enable_tree_training off" in parsed.text
    assert "enable_tree_training: true" not in parsed.text and "Doctor" not in parsed.text


def test_without_a_sweep_nothing_is_picked() -> None:
    parsed = _Parsed(render_report(workspace(with_sweep=False)))
    assert "nothing is picked" in parsed.text
    assert "1.80 ×" not in parsed.text
    assert "step: 1.00 s measured" in parsed.text


def test_without_rows_and_points_it_says_what_is_missing() -> None:
    made = Workspace(PLAN, notes=("The rows could not be read.",))
    parsed = _Parsed(render_report(made))
    assert "No step was measured" in parsed.text and "could not be read" in parsed.text


def test_a_refused_batch_says_so() -> None:
    made = workspace(with_sweep=False, plan=replace(PLAN, max_tokens_per_mb=128))
    assert "exceeds max_tokens_per_tree 128" in _Parsed(render_report(made)).text


def test_the_doctor_reads_the_users_config() -> None:
    config = "actor:\n  backend: fsdp:d1\n  enable_tree_training: true\n  pad_to_maximum: false\n"
    parsed = _Parsed(render_report(workspace(), user_config=config))
    assert "pad_to_maximum" in parsed.text and "Looked at the config given" in parsed.text
    broken = _Parsed(render_report(workspace(), user_config="a: [1"))
    assert "Looked at the config given" in broken.text


def test_tables_as_csv(tmp_path: Path) -> None:
    paths = write_tables(evil_workspace(), tmp_path / "tables")
    assert {p.name for p in paths} >= {"candidates.csv", "evidence.csv", "before_and_after.csv"}
    with (tmp_path / "tables" / "before_and_after.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    tree = next(one for one in lines if one["mode"] == "as trees")
    assert (tree["step s"], tree["step s, known as"]) == ("1.0", "measured")
    assert float(tree["as fast as flat ×"]) == pytest.approx(1.8)


def test_cells_are_no_formulas(tmp_path: Path) -> None:
    made = replace(workspace(), plan=replace(PLAN, source=SourceSpec("file", "=cmd()")))
    write_tables(made, tmp_path)
    assert "'=cmd()" in (tmp_path / "data.csv").read_text()


def test_figures_as_svg_and_png(tmp_path: Path) -> None:
    paths = write_figures(evil_workspace(), tmp_path)
    names = {"sweep", "before_after"}
    assert {p.name for p in paths} == {f"{n}.{kind}" for n in names for kind in ("svg", "png")}
    for name in names:
        drawn = ET.fromstring((tmp_path / f"{name}.svg").read_text())
        assert drawn.tag.endswith("svg")
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.width == 2 * float(drawn.attrib["width"])
            assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 10, "something is drawn"
    assert write_figures(Workspace(PLAN), tmp_path) == []


def test_files_and_zip_hold_what_the_report_draws(tmp_path: Path) -> None:
    made = workspace()
    html = render_report(made)
    with zipfile.ZipFile(io.BytesIO(zipped(made))) as file:
        held = {name: file.read(name) for name in file.namelist()}
    written = [*write_figures(made, tmp_path), *write_tables(made, tmp_path)]
    assert {p.name: p.read_bytes() for p in written} == held
    assert set(held) == {
        *(f"{name}.{kind}" for name in figures_of(made) for kind in ("svg", "png")),
        *(f"{table.name}.csv" for table in tables_of(made)),
    }
    for figure in figures_of(made).values():
        root = ET.fromstring(figure)
        width, height = root.attrib["width"], root.attrib["height"]
        assert root.attrib["viewBox"] == f"0 0 {width} {height}"
        body = figure.split("</style>")[1].split("rollouts.jsonl")[0]
        assert body.rsplit("<text", 1)[0] in html, "the same code draws them"


def test_bundled_rows_are_called_synthetic_wherever_they_leave() -> None:
    plan = replace(PLAN, source=SourceSpec("sample", "math-grpo"))
    made = workspace(plan=plan)
    parsed = _Parsed(render_report(made))
    assert "sample:math-grpo synthetic" in " ".join(parsed.text.split())
    assert "no model did" in parsed.text
    for figure in figures_of(made).values():
        assert "sample:math-grpo (synthetic)" in figure
    assert "synthetic" in [row[1].text for row in tables_of(made)[0].rows]
    assert "synthetic" not in render_report(workspace())


def test_a_plan_off_the_pick_says_so() -> None:
    made = workspace(plan=replace(PLAN, max_tokens_per_mb=640))
    assert "not what the plan has" in _Parsed(render_report(made)).text
    assert "not what the plan has" not in _Parsed(render_report(workspace())).text


def test_steps_come_from_measured_points_of_the_same_question() -> None:
    made = workspace(with_sweep=False)
    other = replace(PLAN, dtype="bfloat16")
    foreign = SavedPoint("r", other, point("tree", 512, 9.0, made.fingerprint, other))
    partial = SavedPoint("r", PLAN, replace(made.points[0].point, outcome="estimated", step_s=7.0))
    mixed = replace(made, points=(foreign, partial, *made.points))
    step = step_of(mixed, "tree")
    assert step is not None and (step.step_s, step.step_kind) == (1.0, "measured")
    assert step_of(mixed, "padded") is None


@settings(max_examples=60, deadline=None)
@given(any_rows, st.integers(1, 3), st.integers(1, 2), st.sampled_from(["areal", "prefix-aware"]))
def test_the_picture_adds_up(
    lists: list[list[int]], dp: int, minibatches: int, packer: Packer
) -> None:
    copies = dp * minibatches
    own = Rows.from_lists([row for row in lists for _ in range(copies)])
    cap = 128
    order = PrefixOrder.of(own)
    chain = simulate(own, BatchSpec(cap, dp, minibatches, packer=packer), order)
    picture = batch_picture(chain)
    paid = chain.comparison
    panels = {p.mode: p for p in picture.panels}
    assert panels["padded"].tokens == paid.padded
    assert panels["flat"].tokens == paid.flat
    assert panels["tree"].tokens == paid.tree
    for panel in picture.panels:
        assert panel.first == order.tree_tokens(), "every token is computed once in every mode"
        assert panel.first + panel.again + panel.padding == panel.tokens
        assert min(panel.first, panel.again, panel.padding) >= 0
        assert sum(b.lines for b in panel.bands) == panel.lines and len(panel.bands) <= MAX_BANDS
        drawn = sum(b.lines * (b.first + b.again + b.padding) for b in panel.bands)
        assert drawn == pytest.approx(panel.tokens)
    assert panels["flat"].first + panels["flat"].again == own.n_tokens


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPALIER_HOME", str(tmp_path / "home"))
    app = typer.Typer()
    commands.register(app)
    runner, here = CliRunner(), tmp_path
    carried = here / "carried.zip"
    save_workspace(carried, workspace(), with_rows=True)

    def run(*words: str | Path) -> str:
        done = runner.invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.output

    out = run("report", carried, "-o", here / "r.html", "--tables", here, "--figures", here)
    assert all(Path(line).is_file() for line in out.split()) and len(out.split()) == 10
    assert "2" in run("import", carried)
    again = run("save", "run1", "-o", here / "again.zip", "--rows")
    assert Path(again.strip()).is_file()
    refused = runner.invoke(app, ["report", "no-such-run", "-o", str(here / "x.html")])
    assert refused.exit_code == 1 and "no-such-run" in refused.output
    assert refused.output.count("\n") == 1 and not (here / "x.html").exists()


@pytest.mark.process
def test_the_commands_need_no_heavy_package() -> None:
    script = (
        "import sys, tuning.report, tuning.workspace.compare_text\n"
        "import tuning.cli.report, tuning.cli.history\n"
        "print([m for m in ('torch', 'streamlit', 'plotly') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.browser
def test_it_opens_from_disk_with_the_network_cut(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_report(evil_workspace(), with_text=True), encoding="utf-8")
    for scheme, width in (("light", 1100), ("dark", 800)):
        context = browser.new_context(
            offline=True, color_scheme=scheme, viewport={"width": width, "height": 900}
        )
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.on("dialog", lambda dialog, said=said: said.append(dialog.message))
        page.goto(path.as_uri())
        assert page.locator("svg").count() == 2
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert said == [] and asked == [path.as_uri()]
        if scheme == "light":
            assert page.pdf()[:4] == b"%PDF"
        context.close()
