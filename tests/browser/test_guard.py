"""The running server with a token: closed to whoever has none, in no frame, in no log."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.app import Server, running
from tests.browser.drive import rested

pytestmark = pytest.mark.browser

TOKEN = "a-token-of-a-test"
ROUTES = [
    "/",
    "/tune",
    "/healthz",
    "/_stcore/health",
    "/_stcore/metrics",
    "/_stcore/host-config",
    "/_stcore/allowed-message-origins",
    "/_stcore/script-health-check",
    "/_stcore/upload_file/s/f",
    "/_stcore/agent/openapi.json",
    "/_stcore/agent/mcp",
    "/_stcore/bidi-components/espalier_strip/index.js",
    "/component/a/index.html",
    "/media/a.csv",
    "/static/js/index.js",
    "/favicon.png",
    "/oauth2callback",
    "/auth/login",
    "/app/static/a",
]
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("locked"), token=TOKEN) as started:
        yield started


def asked(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    body = b"" if answer.status == 101 else answer.read()
    connection.close()
    return answer.status, body


def test_every_route_and_the_socket_are_closed_without_the_token(locked: Server) -> None:
    for path in ROUTES:
        for method in ("GET", "POST", "PUT", "DELETE"):
            assert asked(locked, path, method)[0] == 401, (method, path)
    assert asked(locked, "/_stcore/stream", **UPGRADE)[0] == 403
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert asked(locked, "/_stcore/stream", **UPGRADE, **bearer)[0] == 101
    other = {"Origin": "http://localhost:1"}
    assert asked(locked, "/_stcore/stream", **UPGRADE, **bearer, **other)[0] == 403
    status, body = asked(locked, "/healthz", **bearer)
    assert (status, json.loads(body)) == (200, {"ok": True, "problems": []})


def test_the_token_is_typed_once_and_no_page_frames_the_app(
    browser: Any, locked: Server, tmp_path: Path
) -> None:
    class Framing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"<iframe src='{locked.url}'></iframe>".encode())

        def log_message(self, *given: Any) -> None: ...

    context = browser.new_context()
    page = context.new_page()
    violations: list[str] = []
    page.on("console", lambda m: violations.append(m.text) if "Policy" in m.text else None)
    page.goto(f"{locked.url}/kernels")
    page.get_by_label("Token of this server").fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_label("Token of this server").fill(TOKEN)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Kernels", level=1).wait_for(timeout=60_000)
    rested(page)
    assert TOKEN not in page.url and "/kernels" in page.url
    assert violations == []
    framing = HTTPServer(("127.0.0.1", 0), Framing)
    threading.Thread(target=framing.serve_forever, daemon=True).start()
    page.goto(f"http://127.0.0.1:{framing.server_port}")
    page.wait_for_timeout(500)
    inside = page.frames[1]
    assert inside.url.startswith("chrome-error") and not inside.locator("input").count()
    framing.shutdown()
    framing.server_close()
    context.close()
