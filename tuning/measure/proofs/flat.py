"""Attention over rows one by one, nothing shared: what flat training pays for the same tree.

Notable:
- on a GPU in half precision all rows are one call of PyTorch's flash attention over varied lengths
  (``torch.nn.attention.varlen``); else each row is one causal call
- rows that would take too long on a CPU are sampled and the time is scaled by area; it says so
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kernels.timing import PhaseClock

_CPU_BUDGET = 2e11
"""Floating point operations of a forward pass that a CPU is asked for: some seconds."""


class FlatAttention:
    """Causal attention of each row by itself, with gradients.

    area:   visible (query, key) pairs of all rows
    timed:  how many of the rows are run
    scale:  their area over that of all rows; times are multiplied by its inverse
    """

    def __init__(
        self,
        lengths: npt.NDArray[np.int64],
        heads: tuple[int, int],
        head_dim: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        lengths = np.sort(lengths[lengths > 0])[::-1]
        areas = lengths * (lengths + 1) // 2
        self.rows = len(lengths)
        self.area = int(areas.sum())
        every = 1
        if device.type == "cpu":
            every = max(int(np.ceil(4 * self.area * heads[0] * head_dim / _CPU_BUDGET)), 1)
        # Sorted by length, every so manieth row is like the whole; the middle of each run is.
        chosen = slice(min(every // 2, self.rows - 1), None, every)
        self._lengths = lengths[chosen].tolist()
        self.timed = len(self._lengths)
        self.scale = int(areas[chosen].sum()) / self.area
        self._device = device
        self._whole = device.type == "cuda" and dtype != torch.float32
        tokens = sum(self._lengths) if self._whole else max(self._lengths)
        generator = torch.Generator().manual_seed(0)

        def random(count: int) -> Tensor:
            shape = (tokens, count, head_dim) if self._whole else (1, count, tokens, head_dim)
            return torch.randn(shape, generator=generator).to(device, dtype)

        self._q, self._k, self._v, self._dout = (
            random(count) for count in (heads[0], heads[1], heads[1], heads[0])
        )

    def step(self) -> dict[str, float]:
        """Seconds of one forward and one backward of every row."""
        clock = PhaseClock(self._device)
        if self._whole:
            self._together(clock)
        else:
            for length in self._lengths:
                self._one(clock, length)
        return {name: spent / self.scale for name, spent in clock.seconds().items()}

    def _one(self, clock: PhaseClock, length: int) -> None:
        whole = (self._q, self._k, self._v)
        q, k, v = (x[:, :, :length].detach().requires_grad_() for x in whole)
        grouped = q.shape[1] != k.shape[1]
        with clock.phase("forward"):
            out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        with clock.phase("backward"):
            torch.autograd.grad(out, (q, k, v), self._dout[:, :, :length])

    def _together(self, clock: PhaseClock) -> None:
        from torch.nn.attention.varlen import varlen_attn

        offsets = np.concatenate([[0], np.cumsum(self._lengths)])
        at = torch.tensor(offsets, dtype=torch.int32, device=self._device)
        longest = max(self._lengths)
        q, k, v = (x.detach().requires_grad_() for x in (self._q, self._k, self._v))
        grouped = q.shape[1] != k.shape[1]
        with clock.phase("forward"):
            out = varlen_attn(
                q, k, v, at, at, longest, longest, window_size=(-1, 0), enable_gqa=grouped
            )
        assert isinstance(out, Tensor)  # nothing else was asked for
        with clock.phase("backward"):
            torch.autograd.grad(out, (q, k, v), self._dout)
