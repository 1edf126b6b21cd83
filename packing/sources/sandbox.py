"""Work on untrusted files and templates in a child process: limited in memory and time, stoppable.

Notable:
- ``run`` calls a function of a module in a child and passes on what it sends; cancelling ends the
  child, whatever it is doing
- a child that finished waits for the next call: starting Python is paid once
- frames are JSON with raw arrays behind it: nothing that is executed when it is read
- a child whose parent is gone ends
"""

import atexit
import json
import os
import resource
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

from packing.sources.errors import LoadCancelled, SourceError, Where

MEMORY_BYTES = 4 << 30
# A child that says nothing for so long is taken for stuck; a record has less, and is named.
SILENCE_SECONDS = 120.0
RECORD_SECONDS = 20.0
_POLL_SECONDS = 0.05
_HEAD = struct.Struct("<QQ")
_ROOT = Path(__file__).resolve().parents[__name__.count(".")]

Send = Callable[[Any], None]
_idle: list["_Child"] = []
_lock = threading.Lock()
_in_child = False


class TimeIsUp(BaseException):
    """A record took too long; not an Exception, so that no template's failure hides it."""


def run(
    function: Callable[[Any, Send], Any],
    payload: Any,
    told: Callable[[Any], None],
    cancelled: Callable[[], bool],
    memory: int = MEMORY_BYTES,
    silence: float = SILENCE_SECONDS,
) -> Any:
    """``function(payload, send)`` in a child process; what it returns.

    function: of a module, not nested; what it takes, sends and returns is plain: what JSON holds,
              and numpy arrays
    told:     given whatever the function sends, as it comes
    memory:   bytes the child may take beyond what it starts with
    silence:  seconds without anything sent after which the child is ended

    Raises SourceError: the function's own, or one that says which limit was met; LoadCancelled
    within a moment of ``cancelled`` saying so; RuntimeError with the traceback of anything else.
    """
    child = _taken()
    done = False
    try:
        child.send(
            {
                "function": f"{function.__module__}:{function.__name__}",
                "payload": payload,
                "memory": memory,
                "environment": dict(os.environ),
                "folder": os.getcwd(),
            }
        )
        for kind, value in child.frames(cancelled, silence, memory):
            if kind == "sent":
                told(value)
                continue
            done = True
            if kind == "error":
                raise SourceError(value)
            if kind == "cancelled":
                raise LoadCancelled
            if kind == "failed":
                raise RuntimeError(f"in the child process:\n{value}")
            return value
    finally:
        if done:
            with _lock:
                _idle.append(child)
        else:
            child.end()


@contextmanager
def record_limit(where: Where) -> Iterator[None]:
    """In a child, RECORD_SECONDS for the work on one record; elsewhere no limit.

    Raises SourceError that names the record.
    """
    if not _in_child:
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, RECORD_SECONDS)
    try:
        yield
    except TimeIsUp:
        raise where.error(
            f"takes more than {RECORD_SECONDS:.0f} s to render",
            "the chat template does not end on it, or it is far too long: choose another "
            "tokenizer or take the row out",
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Child:
    """A child process and the two pipes to it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_ROOT,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, request: Any) -> None:
        _write(self._in, request)

    def frames(
        self, cancelled: Callable[[], bool], silence: float, memory: int
    ) -> Iterator[tuple[str, Any]]:
        """(kind, value) as they come. Raises SourceError where the child ends or is silent."""
        held = bytearray()
        last = time.monotonic()
        with selectors.DefaultSelector() as ready:
            ready.register(self._out, selectors.EVENT_READ)
            while True:
                if cancelled():
                    raise LoadCancelled
                if not ready.select(_POLL_SECONDS):
                    if time.monotonic() - last > silence:
                        raise SourceError(
                            f"reading stopped: nothing came for {silence:.0f} s; the file or the "
                            "chat template does not end: read fewer rows or choose another "
                            "tokenizer."
                        )
                    continue
                block = os.read(self._out.fileno(), 1 << 20)
                if not block:
                    code = self._process.wait()
                    raise SourceError(
                        f"reading stopped: the process that read it ended (code {code}), as one "
                        f"that needs more than {memory / (1 << 30):.1f} GiB does; read fewer rows "
                        "or repair the file."
                    )
                last = time.monotonic()
                held += block
                while (frame := _parsed(held)) is not None:
                    kind, value = frame
                    yield kind, value

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._in.close()
        self._out.close()


def _taken() -> _Child:
    """A child that waits, or a new one."""
    with _lock:
        while _idle:
            child = _idle.pop()
            if child.alive:
                return child
            child.end()
    return _Child()


@atexit.register
def _end_idle() -> None:
    while _idle:
        _idle.pop().end()


# -- frames: the length of a JSON text and of the arrays behind it, then both ------------------


def _write(pipe: IO[bytes], value: Any) -> None:
    arrays: list[np.ndarray[Any, Any]] = []

    def plain(item: Any) -> Any:
        if isinstance(item, np.ndarray):
            arrays.append(np.ascontiguousarray(item))
            return {"\0array": [str(item.dtype), list(item.shape)]}
        raise TypeError(f"{type(item).__name__} is no plain value")

    text = json.dumps(value, default=plain).encode()
    pipe.write(_HEAD.pack(len(text), sum(a.nbytes for a in arrays)))
    pipe.write(text)
    for array in arrays:
        pipe.write(array.data.cast("B") if array.nbytes else b"")
    pipe.flush()


def _parsed(held: bytearray) -> Any:
    """The first whole frame, taken off ``held``; None where there is none yet."""
    if len(held) < _HEAD.size:
        return None
    text, size = _HEAD.unpack_from(held)
    start = _HEAD.size + text
    if len(held) < start + size:
        return None
    at = start

    def array(made: dict[str, Any]) -> Any:
        nonlocal at
        if made.keys() != {"\0array"}:
            return made
        dtype, shape = made["\0array"]
        count = int(np.prod(shape, dtype=np.int64))
        out = np.frombuffer(bytes(held[at : at + count * np.dtype(dtype).itemsize]), dtype)
        at += out.nbytes
        return out.reshape(shape)

    value = json.loads(held[_HEAD.size : start], object_hook=array)
    del held[: start + size]
    return value


# -- the child ---------------------------------------------------------------------------------


def _serve() -> None:
    global _in_child
    _in_child = True
    # What libraries print must not come between frames.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()

    def time_is_up(*_: object) -> None:
        raise TimeIsUp

    signal.signal(signal.SIGALRM, time_is_up)
    held = bytearray()
    while block := os.read(0, 1 << 20):
        held += block
        while (request := _parsed(held)) is not None:
            _write(out, _answer(request, lambda value: _write(out, ["sent", value])))


def _answer(request: dict[str, Any], send: Send) -> list[Any]:
    module, _, name = request["function"].partition(":")
    os.environ.clear()
    os.environ.update(request["environment"])
    try:
        os.chdir(request["folder"])
        _limit_memory(request["memory"])
        return ["value", getattr(import_module(module), name)(request["payload"], send)]
    except SourceError as error:
        return ["error", str(error)]
    except LoadCancelled:
        return ["cancelled", None]
    except MemoryError:
        amount = f"{request['memory'] / (1 << 30):.1f} GiB"
        return ["error", f"reading needs more than {amount}; read fewer rows or repair the file."]
    except Exception:  # a fault of ours: shown where the caller is
        return ["failed", traceback.format_exc()]


def _limit_memory(more: int) -> None:
    """``more`` bytes of address space beyond what is taken."""
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = pages * resource.getpagesize() + more
        resource.setrlimit(
            resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
        )


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    # Functions that run here meet this module by its own name, not as __main__.
    import_module(f"{__package__}.{Path(__file__).stem}")._serve()
