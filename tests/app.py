"""The running app and the browser that drives it, for tests, benchmarks and pictures."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
]
_STARTS_WITHIN_S = 90


@contextmanager
def running(home: Path, files: Path | None = None, token: str = "") -> Iterator[Server]:
    """A server from its first answer to its end."""
    server = Server(home, files, token)
    try:
        server.start()
        yield server
    finally:
        server.stop()


class Server:
    """A running app; ``home`` holds its data and cache, ``files`` what may be opened by path."""

    def __init__(self, home: Path, files: Path | None = None, token: str = "") -> None:
        self.home, self.token = home, token
        self.files = files or home / "files"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = os.environ | {
            "ESPALIER_HOME": str(self.home / "data"),
            "ESPALIER_CACHE": str(self.home / "cache"),
            "ESPALIER_DATA": str(self.files),
            "ESPALIER_TOKEN": self.token,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={self.port}"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while time.monotonic() < deadline:
            try:
                bearer = {"Authorization": f"Bearer {self.token}"}
                asked = urllib.request.Request(f"{self.url}/_stcore/health", headers=bearer)
                with urllib.request.urlopen(asked, timeout=2) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.1)
        raise TimeoutError("the app did not answer")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=30)
