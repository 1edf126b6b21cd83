"""Live tensor bytes of whatever runs inside, by kind and by phase; for fake and for real tensors.

Notable:
- a storage counts once, from the operator that made it until nothing refers to it any more
- what an operator uses inside itself is not seen; a caching allocator's spare blocks are not either
- kinds are told apart by who made a storage and when; the sum does not depend on them
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Kind = Literal[
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "masks",
    "buffers",
    "temporaries",
]
KINDS: tuple[str, ...] = get_args(Kind)
PERSISTENT: tuple[str, ...] = ("parameters", "gradients", "optimizer")
"""What lives from step to step, or from micro-batch to micro-batch."""

Bytes = Mapping[str, int]


@dataclass
class _Storage:
    size: int
    kind: Kind
    alive: weakref.ref[torch.UntypedStorage]


@dataclass(frozen=True)
class PhasePeak:
    """Live bytes by kind at a phase's peak, and at the peak of what is not ``PERSISTENT``."""

    whole: Bytes
    passing: Bytes


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while active; ``phase`` and ``kind`` say where the run is.

    granularity: an allocator's smallest block in bytes; sizes are rounded up to it
    """

    def __init__(self, granularity: int = 1) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._granularity = granularity
        self._storages: dict[int, _Storage] = {}
        self._live: dict[str, int] = dict.fromkeys(KINDS, 0)
        self._peaks: dict[str, dict[str, int]] = {}
        self._passing: dict[str, dict[str, int]] = {}
        self._kind: Kind | None = None
        self._phase: str | None = None
        self.in_backward = False
        self.backward_kind: Kind = "temporaries"

    @property
    def phase(self) -> str | None:
        """Where the run is; what lives when a phase begins counts, though it makes nothing."""
        return self._phase

    @phase.setter
    def phase(self, name: str | None) -> None:
        self._phase = name
        if name is not None:
            self._note(name)

    def take_peaks(self) -> dict[str, PhasePeak]:
        """The peak of every phase since they were last taken, in order of first use."""
        whole, self._peaks = self._peaks, {}
        passing, self._passing = self._passing, {}
        return {name: PhasePeak(whole[name], passing[name]) for name in whole}

    @contextmanager
    def making(self, kind: Kind) -> Iterator[None]:
        """What is made in the block is of ``kind``; an outer block's say ends with it."""
        before, self._kind = self._kind, kind
        try:
            yield
        finally:
            self._kind = before

    def label(self, tensors: Iterable[Tensor], kind: Kind) -> None:
        """Count ``tensors`` as ``kind``, whether seen before or not."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            known = self._storages.get(id(storage))
            if known is None:
                self._add(storage, kind)
            else:
                self._live[known.kind] -= known.size
                self._live[kind] += known.size
                known.kind = kind

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                if id(storage) not in self._storages:
                    self._add(storage, self._kind or self._kind_now())
        return out

    def _kind_now(self) -> Kind:
        """In a backward pass gradients are off, except where a checkpoint is recomputed."""
        if self.in_backward and not torch.is_grad_enabled():
            return self.backward_kind
        return "activations"

    def _add(self, storage: torch.UntypedStorage, kind: Kind) -> None:
        size = -(-storage.nbytes() // self._granularity) * self._granularity
        gone = partial(self._remove, id(storage))
        self._storages[id(storage)] = _Storage(size, kind, weakref.ref(storage, gone))
        self._live[kind] += size
        if self._phase is not None:
            self._note(self._phase)

    def _remove(self, key: int, _: weakref.ref[torch.UntypedStorage]) -> None:
        gone = self._storages.pop(key)
        self._live[gone.kind] -= gone.size

    def _note(self, phase: str) -> None:
        for peaks, without in ((self._peaks, ()), (self._passing, PERSISTENT)):
            before = peaks.get(phase)
            if before is None or _total(self._live, without) > _total(before, without):
                peaks[phase] = dict(self._live)


def _total(live: Bytes, without: tuple[str, ...]) -> int:
    return sum(live.values()) - sum(live[kind] for kind in without)
