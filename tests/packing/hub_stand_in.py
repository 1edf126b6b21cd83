"""A stand-in of the Hugging Face Hub on this machine: the addresses that ``datasets`` asks for."""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c0ffee" * 6 + "c0ff"
DATASET = "team/rollouts"


@contextmanager
def hub(files: dict[str, bytes]) -> Iterator[str]:
    """Address of a Hub that holds ``team/rollouts`` with ``files``.

    ``team/secret`` is private and ``team/terms`` is gated; no other dataset exists.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
            for owner, code, error in (
                ("secret", 401, "RepoNotFound"),
                ("terms", 403, "GatedRepo"),
            ):
                if f"/team/{owner}/" in path + "/":
                    return self.reply(code, b"", {"X-Error-Code": error, "X-Error-Message": "no"})
            for prefix, answer in (("/api/datasets/", self.api), ("/datasets/", self.resolve)):
                if path.startswith(f"{prefix}{DATASET}"):
                    return answer(path.removeprefix(f"{prefix}{DATASET}").lstrip("/"))
            self.missing("RepoNotFound")

        do_HEAD = do_GET

        def api(self, rest: str) -> None:
            what, _, tail = rest.partition("/")
            revision, _, folder = tail.partition("/")
            if what and revision not in ("main", COMMIT):
                return self.missing("RevisionNotFound")
            if what == "tree":
                return self.tree(folder)
            self.json(
                {
                    "id": DATASET,
                    "sha": COMMIT,
                    "private": False,
                    "gated": False,
                    "disabled": False,
                    "downloads": 0,
                    "likes": 0,
                    "tags": [],
                    "siblings": [{"rfilename": name} for name in files],
                }
            )

        def tree(self, folder: str) -> None:
            prefix = f"{folder}/" if folder else ""
            entries: dict[str, dict[str, object]] = {}
            for name, content in files.items():
                if not name.startswith(prefix):
                    continue
                head, slash, _ = name[len(prefix) :].partition("/")
                kind = "directory" if slash else "file"
                entries[head] = {
                    "type": kind,
                    "path": prefix + head,
                    "oid": "0" * 40,
                    "size": 0 if slash else len(content),
                }
            if folder and not entries:
                return self.missing("EntryNotFound")
            self.json(list(entries.values()))

        def resolve(self, rest: str) -> None:
            _, _, tail = rest.partition("/")
            revision, _, name = tail.partition("/")
            if revision not in ("main", COMMIT):
                return self.missing("RevisionNotFound")
            if name not in files:
                return self.missing("EntryNotFound")
            tag = hashlib.sha1(files[name]).hexdigest()
            self.reply(200, files[name], {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT})

        def missing(self, error: str) -> None:
            headers = {"X-Error-Code": error, "X-Error-Message": error, "X-Repo-Commit": COMMIT}
            self.reply(404, b"", headers)

        def json(self, value: object) -> None:
            self.reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def reply(self, code: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(code)
            for name, value in (*headers.items(), ("Content-Length", str(len(body)))):
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Silence: requests are no test output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
