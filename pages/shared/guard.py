"""What stands before every request: headers, origins, and a shared token where one is set.

Notable:
- a page of ours runs in no frame, loads nothing from elsewhere, and is told to nobody: a foreign
  text that became markup after all would still fetch nothing
- the socket opens for pages of this server and of ``server.corsAllowedOrigins`` alone; Streamlit
  itself would take any port of this machine
- with ``ESPALIER_TOKEN`` all of it, media, uploads, socket and health, is refused without the
  token: it is typed once, and a cookie that is made of it goes on; scripts send it as a bearer
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import re
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import streamlit as st

from tuning.jobs.health import problems

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_COOKIE = "espalier"
_FORM_BYTES = 4096
_WRONG_S = 0.5
_LOGIN = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Espalier</title>
<style>body { font: 1rem system-ui, sans-serif; margin: 20vh auto; max-width: 24rem; }</style>
<form method="post"><h1>Espalier</h1><p><label>Token of this server<br>
<input name="token" type="password" autocomplete="current-password" autofocus></label>
<button>Enter</button></p></form></html>"""


def _policy() -> str:
    """The content policy; Streamlit's own inline scripts are let in one by one, by their hashes."""
    page = (Path(st.__file__).parent / "static" / "index.html").read_text("utf-8")
    inline = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in inline)
    scripts = " ".join(f"'sha256-{digest}'" for digest in digests)
    return "; ".join(
        [
            "default-src 'self'",
            f"script-src 'self' blob: {scripts}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "worker-src 'self' blob:",
            "frame-src 'none'",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        ]
    )


class Guard:
    """ASGI middleware around Streamlit's app."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self.app = app
        self._token = os.environ.get("ESPALIER_TOKEN", "").strip().encode()
        # What the cookie holds opens this server and does not tell the token.
        self._pass = hmac.new(self._token, b"espalier session", "sha256").hexdigest().encode()
        self._headers = [
            (b"content-security-policy", _policy().encode()),
            (b"x-frame-options", b"DENY"),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"same-origin"),  # none at all would hide our own forms' origin
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        given = {name.lower(): value for name, value in scope["headers"]}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in self._headers}
                kept = [one for one in message.get("headers", []) if one[0].lower() not in own]
                message["headers"] = [*kept, *self._headers]
            await send(message)

        if not _same_origin(given):
            await _refuse(scope, answer, 403, "This server answers its own pages alone.")
        elif self._token and not self._knows(given):
            await self._ask(scope, given, receive, answer)
        elif scope["type"] == "http" and scope["path"].endswith("/healthz"):
            found = await asyncio.to_thread(problems)
            body = json.dumps({"ok": not found, "problems": found})
            await _say(answer, 503 if found else 200, body, b"application/json")
        else:
            await self.app(scope, receive, answer)

    def _knows(self, given: dict[bytes, bytes]) -> bool:
        """Whether a request brings the token, or the cookie that stands for it."""
        kind, _, bearer = given.get(b"authorization", b"").partition(b" ")
        try:
            cookie = SimpleCookie(given.get(b"cookie", b"").decode("latin-1")).get(_COOKIE)
        except CookieError:
            cookie = None
        brought = (cookie.value if cookie else "").encode("latin-1", "replace")
        by_cookie = hmac.compare_digest(brought, self._pass)
        by_bearer = hmac.compare_digest(bearer.strip(), self._token) and kind.lower() == b"bearer"
        return by_cookie or by_bearer

    async def _ask(
        self, scope: Message, given: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Take the token from the form and set the cookie; else show the form, and nothing else."""
        form = given.get(b"content-type", b"").startswith(b"application/x-www-form-urlencoded")
        if scope["type"] == "http" and scope["method"] == "POST" and form:
            typed = parse_qs(await _body(receive)).get(b"token", [b""])[0].strip()
            if hmac.compare_digest(typed, self._token):
                query = scope.get("query_string", b"")
                back = scope.get("raw_path", scope["path"].encode()).partition(b"?")[0]
                # One slash: two would name another host.
                to = b"/" + back.lstrip(b"/\\") + (b"?" + query if query else b"")
                secure = "; Secure" if _scheme(scope, given) == "https" else ""
                value = f"{_COOKIE}={self._pass.decode()}; Path=/; HttpOnly; SameSite=Strict"
                more = [(b"location", to), (b"set-cookie", f"{value}{secure}".encode())]
                await _say(send, 303, "", more=more)
                return
            await asyncio.sleep(_WRONG_S)
        if scope["type"] == "http" and b"text/html" in given.get(b"accept", b""):
            await _say(send, 401, _LOGIN, b"text/html; charset=utf-8")
        else:
            await _refuse(scope, send, 401, "This server asks for its token.")


def _same_origin(given: dict[bytes, bytes]) -> bool:
    """Whether a request comes from a page of this server or one listed, or from no page at all."""
    origin = given.get(b"origin")
    if origin is None:
        return True
    listed = [str(one).rstrip("/") for one in st.get_option("server.corsAllowedOrigins")]
    text = origin.decode("latin-1")
    host = given.get(b"host", b"").decode("latin-1")
    return text in listed or (bool(host) and urlsplit(text).netloc == host)


def _scheme(scope: Message, given: dict[bytes, bytes]) -> str:
    """``https`` also where a proxy takes it away."""
    return given.get(b"x-forwarded-proto", str(scope.get("scheme", "")).encode()).decode("latin-1")


async def _body(receive: Receive) -> bytes:
    """The body of a request; what is longer than a form is cut off."""
    body, more = b"", True
    while more and len(body) <= _FORM_BYTES:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body[:_FORM_BYTES]


async def _refuse(scope: Message, send: Send, status: int, sentence: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})  # before it is accepted: HTTP 403
    else:
        await _say(send, status, sentence)


async def _say(
    send: Send,
    status: int,
    body: str,
    kind: bytes = b"text/plain; charset=utf-8",
    more: list[tuple[bytes, bytes]] | None = None,
) -> None:
    headers = [(b"content-type", kind), (b"cache-control", b"no-store"), *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})
