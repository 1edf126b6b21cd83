"""Where batches are counted: processes here, Ray's tasks, or jobs of Slurm.

Notable:
- one interface: a function that takes ``Rows`` is submitted, a future comes back; who asks does not
  know where it runs, and the answers are the same bit for bit
- rows are not sent with a task: a process here and a job of Slurm map the files, Ray's workers
  read its object store
- Ray and Slurm are extras; without them nothing else changes
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from packing.rows import Rows

T = TypeVar("T")
Array = npt.NDArray[Any]
_ARRAYS = ("tokens", "offsets", "group")
_ROOT = Path(__file__).resolve().parents[__package__.count(".") + 1]
_KNOCK_S = 5.0
_SLURM_JOBS = 64
_SLURM_MINUTES = 60


class LauncherError(RuntimeError):
    """Nothing can run there; the message says why, and what to do."""


@dataclass(frozen=True, eq=False)
class Workers:
    """size: how many tasks run at once; run: does one of them, wherever that is."""

    size: int
    pool: Executor
    run: Callable[..., Any]

    def submit(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """``work(rows, *arguments)`` in a worker."""
        return self.pool.submit(self.run, work, *arguments)


@contextmanager
def launched(on: str, rows: Rows) -> Iterator[Workers]:
    """Workers over ``rows`` (without loss mask and decoder); what they hold is gone at the end.

    on: ``local``, ``ray``, ``ray:ADDRESS``, ``slurm``, ``slurm:PARTITION``
    Raises LauncherError.
    """
    name, _, where = on.partition(":")
    if name not in LAUNCHERS:
        known = ", ".join(LAUNCHERS)
        raise LauncherError(f"--on {on}: choose one of {known}, or ray:ADDRESS, slurm:PARTITION")
    with ExitStack() as stack:
        yield LAUNCHERS[name](stack, where, rows)


def _local(stack: ExitStack, where: str, rows: Rows) -> Workers:
    size = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pool = ProcessPoolExecutor(size, get_context("spawn"))
    stack.callback(pool.shutdown, cancel_futures=True)
    return Workers(size, pool, _Mapped(_files(stack, rows, None)))


def _ray(stack: ExitStack, where: str, rows: Rows) -> Workers:
    ray = _extra("ray", "ray")
    if not ray.is_initialized():
        code = {"py_modules": [str(_ROOT / name) for name in ("packing", "tuning")]}
        try:
            _reached(where)  # Ray itself goes on knocking for minutes
            ray.init(
                where or None, runtime_env=code, log_to_driver=False, logging_level=logging.ERROR
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise LauncherError(
                f"no Ray cluster answers at {where or 'this machine'} ({_first_line(error)}): "
                "name its address as ray:HOST:PORT, with the cluster's version of Ray here"
            ) from None
        stack.callback(ray.shutdown)
    kept = ray.put({name: getattr(rows, name) for name in _ARRAYS})
    task = ray.remote(num_cpus=1, max_retries=3)(_of_arrays)
    size = max(1, int(ray.cluster_resources().get("CPU", 1)))
    pool = ThreadPoolExecutor(2 * size)
    stack.callback(pool.shutdown, cancel_futures=True)
    return Workers(size, pool, lambda work, *given: ray.get(task.remote(kept, work, *given)))


def _slurm(stack: ExitStack, where: str, rows: Rows) -> Workers:
    submitit = _extra("submitit", "slurm")
    # Jobs run elsewhere: what they read lies where every node sees it.
    shared = Path(os.environ.get("ESPALIER_SHARED") or Path.cwd())
    folder = stack.enter_context(tempfile.TemporaryDirectory(dir=shared, prefix="espalier-jobs-"))
    executor = submitit.AutoExecutor(folder, cluster="local" if where == "local" else None)
    if executor.cluster != "slurm" and where != "local":
        raise LauncherError("no Slurm here (sbatch is not found): run this on a login node")
    executor.update_parameters(timeout_min=_SLURM_MINUTES, cpus_per_task=1)
    if executor.cluster == "slurm" and where:
        executor.update_parameters(slurm_partition=where)
    size = _SLURM_JOBS if executor.cluster == "slurm" else os.cpu_count() or 1
    mapped = _Mapped(_files(stack, rows, Path(folder)))
    pool = ThreadPoolExecutor(size)
    stack.callback(pool.shutdown, cancel_futures=True)
    return Workers(size, pool, lambda *given: executor.submit(mapped, *given).result())


LAUNCHERS: Mapping[str, Callable[[ExitStack, str, Rows], Workers]] = {
    "local": _local,
    "ray": _ray,
    "slurm": _slurm,
}


def _reached(address: str) -> None:
    """Raises OSError where nobody listens at ``HOST:PORT``."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), _KNOCK_S).close()


def _extra(package: str, extra: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise LauncherError(
            f"{package} is not installed here: pip install 'espalier[{extra}]'"
        ) from None


@dataclass(frozen=True)
class _Mapped:
    """Runs work over rows whose arrays are mapped anew, so that pages read before are let go."""

    files: Mapping[str, str]

    def __call__(self, work: Callable[..., T], *arguments: Any) -> T:
        found = {
            name: np.load(path, mmap_mode="r", allow_pickle=False)
            for name, path in self.files.items()
        }
        return _of_arrays(found, work, *arguments)


def _of_arrays(arrays: Mapping[str, Array], work: Callable[..., T], *arguments: Any) -> T:
    tokens, offsets, group = (np.asarray(arrays[name]) for name in _ARRAYS)
    return work(Rows(tokens, offsets, group), *arguments)


def _files(stack: ExitStack, rows: Rows, folder: Path | None) -> dict[str, str]:
    """Where each array lies as ``.npy``; those that are in memory alone are written.

    folder: where they must lie; None: anywhere that this machine sees
    """
    arrays = {name: getattr(rows, name) for name in _ARRAYS}
    lying = {} if folder else {n: path for n, one in arrays.items() if (path := _file_of(one))}
    if folder is None and len(lying) < len(arrays):
        made = tempfile.TemporaryDirectory(prefix="espalier-rows-")
        folder = Path(stack.enter_context(made))
    for name in arrays.keys() - lying.keys():
        assert folder is not None
        lying[name] = folder / f"{name}.npy"
        np.save(lying[name], arrays[name], allow_pickle=False)
    return {name: str(path) for name, path in lying.items()}


def _file_of(array: Array) -> Path | None:
    """The ``.npy`` that an array is the whole of, as rows out of the cache are."""
    base = array.base
    if not isinstance(base, np.memmap) or base.filename is None:
        return None
    whole = base.shape == array.shape and base.dtype == array.dtype
    return Path(base.filename) if whole and str(base.filename).endswith(".npy") else None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
