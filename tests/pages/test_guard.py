"""What stands before the pages: headers, origins, the token, and health that is true."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pages.shared import guard
from pages.shared.guard import Guard

HOST = (b"host", b"lab:8501")
ROUTES = (
    "/",
    "/tune",
    "/healthz",
    "/_stcore/health",
    "/_stcore/host-config",
    "/_stcore/upload_file/a/b",
    "/_stcore/agent/mcp",
    "/_stcore/bidi-components/x/index.js",
    "/component/x/index.html",
    "/media/abc.csv",
    "/static/js/index.js",
    "/app/static/x",
)


def asked(
    app: Guard,
    path: str,
    *headers: tuple[bytes, bytes],
    method: str = "GET",
    body: bytes = b"",
    kind: str = "http",
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer; of a socket 101 where it may open."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": kind,
        "path": path,
        "headers": [HOST, *headers],
        "method": method,
        "scheme": "http",
        "query_string": b"cap=1",
    }
    with ThreadPoolExecutor(1) as thread:  # this one may have a loop already, for a browser
        thread.submit(asyncio.run, app(scope, receive, send)).result()
    first = sent[0]
    if kind == "websocket":
        return {"websocket.accept": 101, "websocket.close": 403}[first["type"]], {}, b""
    found = {name.decode(): value.decode() for name, value in first["headers"]}
    return first["status"], found, b"".join(m.get("body", b"") for m in sent[1:])


async def _inside(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"X-Frame-Options", b"ALLOWALL")],
        }
    )
    await send({"type": "http.response.body", "body": b"inside"})


@pytest.fixture
def open_app(monkeypatch: pytest.MonkeyPatch) -> Guard:
    monkeypatch.delenv("ESPALIER_TOKEN", raising=False)
    monkeypatch.setattr(guard, "problems", list)
    return Guard(_inside)


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> Guard:
    monkeypatch.setenv("ESPALIER_TOKEN", "s3cret")
    monkeypatch.setattr(guard, "problems", list)
    monkeypatch.setattr(guard, "_WRONG_S", 0.0)
    return Guard(_inside)


@pytest.mark.parametrize("path", ROUTES)
def test_every_answer_has_the_headers(open_app: Guard, path: str) -> None:
    status, headers, _ = asked(open_app, path)
    assert status == 200
    policy = headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy and "default-src 'self'" in policy
    assert "unsafe-eval" not in policy and "script-src 'self' blob: 'sha256-" in policy
    assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("origin", "may"),
    [
        (b"http://lab:8501", True),
        (b"http://lab:8502", False),
        (b"http://localhost:3000", False),
        (b"http://127.0.0.1:8501", False),
        (b"http://lab:8501.evil.example", False),
        (b"http://evil.example", False),
        (b"null", False),
        (b"", False),
    ],
)
def test_other_origins_are_refused(open_app: Guard, kind: str, origin: bytes, may: bool) -> None:
    status, _, _ = asked(open_app, "/_stcore/stream", (b"origin", origin), kind=kind)
    assert (status in (101, 200)) is may


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"accept", b"text/html"),),
        ((b"authorization", b"Bearer wrong"),),
        ((b"authorization", b"Bearer "),),
        ((b"authorization", b"Basic s3cret"),),
        ((b"cookie", b"espalier=s3cret"),),
        ((b"cookie", b"espalier=\xff; ="),),
    ],
)
def test_nothing_is_open_without_the_token(locked: Guard, path: str, headers: Any) -> None:
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
        status, _, body = asked(locked, path, *headers, method=method, body=b"token=wrong")
        assert status == 401 and b"inside" not in body
    assert asked(locked, path, *headers, kind="websocket")[0] == 403


def test_the_token_opens_by_form_then_cookie_or_as_a_bearer(locked: Guard) -> None:
    form = (b"content-type", b"application/x-www-form-urlencoded")
    status, headers, _ = asked(locked, "//evil.example", form, method="POST", body=b"token=s3cret")
    assert status == 303 and headers["location"] == "/evil.example?cap=1"
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "s3cret" not in cookie
    brought = (b"cookie", cookie.partition(";")[0].encode())
    for way in (brought, (b"authorization", b"Bearer s3cret")):
        assert asked(locked, "/media/abc.csv", way)[2] == b"inside"
        assert asked(locked, "/_stcore/stream", way, kind="websocket")[0] == 101
    assert asked(locked, "/", form, method="POST", body=b"token=no")[0] == 401
    assert asked(locked, "/", brought, (b"origin", b"http://evil.example"))[0] == 403


def test_health_says_what_is_wrong(open_app: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(open_app, "/healthz")[0] == 200
    monkeypatch.setattr(guard, "problems", lambda: ["the disk is full"])
    status, _, body = asked(open_app, "/healthz")
    assert status == 503 and b"the disk is full" in body
