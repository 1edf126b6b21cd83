"""What attention on the timed tree itself must give, in float32, for one key head and some rows.

Notable:
- every query of one key head's group is computed, because dK and dV need all of them; what is kept
  are sampled rows of the output and of each gradient
- errors are the largest difference over the largest reference value, as in ``gpu_checks``
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.attention.mask import TreeMask

CHUNK = 512
ROWS = 64


@dataclass(frozen=True)
class SampledReference:
    """rows: int64 ``(R,)``; out and dq ``(group, R, D)``, dk and dv ``(R, D)`` of ``kv_head``."""

    kv_head: int
    group: int
    rows: Tensor
    out: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor

    @staticmethod
    def of(
        q: Tensor, k: Tensor, v: Tensor, dout: Tensor, mask: TreeMask, kv_head: int = 0
    ) -> SampledReference:
        """q, dout ``(1, Hq, N, D)``, k and v ``(1, Hkv, N, D)``; the last key head by -1."""
        kv_head %= k.shape[1]
        group, n = q.shape[1] // k.shape[1], mask.n
        heads = slice(kv_head * group, (kv_head + 1) * group)
        generator = torch.Generator().manual_seed(0)
        rows = torch.randperm(n, generator=generator)[: min(ROWS, n)].sort().values.to(q.device)
        qs, douts = (x[0, heads].detach().float() for x in (q, dout))
        key, value = (x[0, kv_head].detach().float() for x in (k, v))
        scale = q.shape[3] ** -0.5
        out, dq = torch.empty_like(qs), torch.empty_like(qs)
        dk = torch.zeros((len(rows), key.shape[1]), device=q.device)
        dv = torch.zeros_like(dk)
        for low in range(0, n, CHUNK):
            part = slice(low, min(low + CHUNK, n))
            seen = mask.visible(part, slice(None))
            scores = (qs[:, part] @ key.T * scale).masked_fill(~seen, -math.inf)
            weights = scores.softmax(-1).nan_to_num(0.0)  # padding sees nothing
            out[:, part] = weights @ value
            delta = (out[:, part] * douts[:, part]).sum(-1, keepdim=True)
            dscores = weights * (douts[:, part] @ value.T - delta) * scale
            dq[:, part] = dscores @ key
            dk += torch.einsum("gqk,gqd->kd", dscores[:, :, rows], qs[:, part])
            dv += torch.einsum("gqk,gqd->kd", weights[:, :, rows], douts[:, part])
        return SampledReference(kv_head, group, rows, out[:, rows], dq[:, rows], dk, dv)

    def errors(self, out: Tensor, dq: Tensor, dk: Tensor, dv: Tensor) -> dict[str, float]:
        """Errors of whole results, shapes as given to ``of``."""
        heads = slice(self.kv_head * self.group, (self.kv_head + 1) * self.group)
        return {
            "out": _error(out[0, heads][:, self.rows], self.out),
            "dq": _error(dq[0, heads][:, self.rows], self.dq),
            "dk": _error(dk[0, self.kv_head, self.rows], self.dk),
            "dv": _error(dv[0, self.kv_head, self.rows], self.dv),
        }


def _error(got: Tensor, want: Tensor) -> float:
    if not bool(torch.isfinite(got).all()):
        return math.inf
    return float((got.float() - want).abs().max() / want.abs().max().clamp_min(1e-30))
