"""Hostile text in every field that is shown: it is read letter by letter, and fetches nothing.

One text holds every payload around a word of its own: what acts makes an element of just that word.
The beacon is a server of our own, which also hears what the app itself would ask for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from packing.prefixes import PrefixOrder
from packing.sources.spec import SourceSpec
from tests.app import Server, running
from tests.browser.drive import rested, to_tab
from tests.tuning.workspaces import PROVENANCE, point, rows, sweep
from tuning.plan.batch import Batch
from tuning.plan.plan import TuningPlan
from tuning.sweep.result import Pick
from tuning.workspace.file import save_workspace
from tuning.workspace.workspace import SavedPoint, Workspace

pytestmark = pytest.mark.browser

PAYLOADS = (
    "**{}**", "_{}_", "`{}`", "~~{}~~", "[{}]({url})", "![{}]({url}.png)", "<b>{}</b>",
    "<img src={url}.gif alt={}>", "{url}/{}", "www.{}.example", "{}@beacon.example", ":red[{}]",
    ":violet-badge[{}]", "$ {} $ ${}$", ":material/{}:", "&#58;red[{}]", "\x1b[31m{}\x1b[0m",
    "=1+{}",
)  # fmt: skip
IN_A_FILE_NAME = tuple(text for text in PAYLOADS if "/" not in text and "{url}" not in text)


@pytest.fixture(scope="module")
def beacon() -> Iterator[tuple[str, list[str]]]:
    heard: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.path)
            self.send_error(404)

        def log_message(self, *given: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    server.server_close()


class Hostile:
    """Makes the text of a place, and then says what of it acted on a page."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pairs: set[str] = set()

    def text(self, place: str, payloads: tuple[str, ...] = PAYLOADS) -> str:
        words = [f"evil{place}{number}q" for number in range(len(payloads))]
        self.pairs.update(words)
        return " ".join(
            text.replace("{url}", self.url).replace("{}", word)
            for text, word in zip(payloads, words, strict=True)
        )

    def look(self, page: Any, *places: str) -> None:
        """What was written for these places is on screen, and nothing of it acts."""
        rested(page)
        seen = page.locator("body").inner_text()
        assert [place for place in places if f"evil{place}" not in seen] == []
        acting = page.evaluate(
            r"""url => [...document.querySelectorAll('[data-testid=stApp] *')].filter(e =>
              /^[\s\u2060]*evil\w+q[\s\u2060]*$/.test(e.textContent) && !e.closest('input, option')
              || ['href', 'src'].some(name => e.getAttribute(name)?.match(/^mailto|^http.*evil/)
                                           || e.getAttribute(name)?.startsWith(url))
            ).map(e => e.outerHTML.slice(0, 200))""",
            self.url,
        )
        assert acting == []


@pytest.fixture(scope="module")
def hostile(beacon: tuple[str, list[str]]) -> Hostile:
    return Hostile(beacon[0])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, hostile: Hostile) -> Path:
    """Rows whose file name, roles and texts are hostile; a file that does not open; a workspace."""
    folder = tmp_path_factory.mktemp("files")
    said = hostile.text("text")
    turns = [{"role": "user", "content": said}, {"role": "assistant", "content": said * 2}]
    lines = [{"messages": [*turns, {"role": "user", "content": f"{n}"}]} for n in range(8)]
    name = hostile.text("file", IN_A_FILE_NAME)
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    odd = [{"messages": [{"role": hostile.text("role"), "content": "a"}, *turns]}]
    (folder / "odd.jsonl").write_text(json.dumps(odd[0]) + "\n")
    (folder / "columns.jsonl").write_text(json.dumps({hostile.text("column"): 1}) + "\n")
    (folder / "own.yaml").write_text(
        f"actor:\n  path: {json.dumps(hostile.text('value'))}\n"
        f"  {json.dumps(hostile.text('key'))}: 1\n"
    )
    made = rows()
    plan = TuningPlan(
        SourceSpec("file", "gone.jsonl"), max_tokens_per_mb=512, model=hostile.text("model")
    )
    swept = sweep(Pick("tree", 512, hostile.text("reason"), 1.8, 1.0, "measured"))
    swept = replace(swept, notes=(hostile.text("note"),))
    measured = point("tree", 512, 1.0, made.fingerprint, plan)
    whose = replace(measured.question, machine=f"cpu {hostile.text('machine')}")
    save_workspace(
        folder / "shared.zip",
        Workspace.of(
            plan,
            Batch(made, PrefixOrder.of(made)),
            (SavedPoint("a-run", plan, replace(measured, question=whose)),),
            swept,
            PROVENANCE,
        ),
    )
    return folder


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("hostile"), files) as started:
        yield started


def test_hostile_text_is_read_and_does_nothing(
    page: Any, app: Server, files: Path, hostile: Hostile, beacon: tuple[str, list[str]]
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))

    def open_with(path: str, rows: Path | str, **query: str) -> None:
        plan = TuningPlan(SourceSpec("file", str(rows)), prompts_per_step=0)
        page.goto(f"{app.url}/{path}?{urlencode(plan.to_query() | query)}")

    open_with("dataset", next(files.glob("*evil*")), cap=hostile.text("link"))
    page.get_by_role("heading", name="Rows", exact=True).wait_for()
    hostile.look(page, "file", "link", "text")
    for name, place in (("odd", "role"), ("columns", "column")):
        open_with("dataset", files / f"{name}.jsonl")
        page.get_by_role("button", name="Try again").wait_for()
        hostile.look(page, place)

    open_with("export", next(files.glob("*evil*")), model=hostile.text("model"))
    to_tab(page, "Your own config")
    page.locator("input[accept*=yaml]").set_input_files(files / "own.yaml")
    page.get_by_role("heading", name="As it stands").wait_for()
    hostile.look(page, "key", "value")
    to_tab(page, "Save and share")
    page.locator("input[accept*=zip]").last.set_input_files(files / "shared.zip")
    page.get_by_text("Its rows are not here").wait_for()
    hostile.look(page, "reason")
    open_with("compare", next(files.glob("*evil*")), vs="runs", **{"a.run": hostile.text("run")})
    rested(page)
    assert [url for url in asked if not url.startswith((app.url, "data:", "blob:"))] == []
    assert beacon[1] == []
    assert len(hostile.pairs) >= 60
