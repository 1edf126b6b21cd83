"""Attention of other libraries as the GPU run calls it, and stand-ins for a machine without a GPU.

Notable:
- ``varlen`` functions: (q, k, v, cu_q, cu_k, longest_q, longest_k) to the output, q ``(T, Hq, D)``,
  k and v ``(S, Hkv, D)``, causal with the ends of queries and keys aligned
- a library that is not installed, or too old, says so as ``CannotRun``; a stand-in never does
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

Varlen = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int, int], Tensor]


class CannotRun(RuntimeError):
    """This provider cannot run here; the message says why."""


class Libraries:
    """The libraries of a GPU machine."""

    def flex(self, dynamic: bool) -> Callable[..., Any]:
        return _compiled_flex(dynamic)

    def varlen(self, library: str) -> Varlen:
        """``"torch"``, ``"flash2"`` or ``"flash3"``."""
        try:
            if library == "torch":
                from torch.nn.attention.varlen import varlen_attn

                return torch_varlen(varlen_attn)
            if library == "flash2":
                from flash_attn import flash_attn_varlen_func

                return flash_varlen(flash_attn_varlen_func)
            from flash_attn_interface import flash_attn_varlen_func as flash3

            return flash_varlen(flash3)
        except ImportError as error:
            raise CannotRun(f"not installed: {error}") from error

    def causal(self, backend: SDPBackend) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        return attend


class DryLibraries(Libraries):
    """The same calls by plain attention: slow, right, and on any device."""

    def flex(self, dynamic: bool) -> Callable[..., Any]:
        def attend(q: Tensor, k: Tensor, v: Tensor, *, block_mask: Any, **options: Any) -> Tensor:
            place = torch.arange(q.shape[2])
            seen = block_mask.mask_mod(0, 0, place[:, None], place[None, :])
            out = scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
            return torch.where(seen.any(1)[:, None], out, 0.0)

        return attend

    def varlen(self, library: str) -> Varlen:
        if library == "torch":
            return torch_varlen(_new_varlen)
        return flash_varlen(_flash_func if library == "flash2" else _flash3_func)

    def causal(self, backend: SDPBackend) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        return super().causal(SDPBackend.MATH)


@cache
def _compiled_flex(dynamic: bool) -> Callable[..., Any]:
    torch._dynamo.config.recompile_limit = 64  # past it FlexAttention runs unfused
    return torch.compile(flex_attention, dynamic=dynamic)


def torch_varlen(function: Callable[..., Any]) -> Varlen:
    """torch's ``varlen_attn`` of any release: ``is_causal`` became ``window_size``, GQA is new."""
    known = inspect.signature(function).parameters
    causal = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    grouped = "enable_gqa" in known

    def attend(q: Tensor, k: Tensor, v: Tensor, *lengths: Any) -> Tensor:
        options: dict[str, Any] = dict(causal)
        if grouped:
            options["enable_gqa"] = True
        else:
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        out: Tensor = function(q, k, v, *lengths, **options)
        return out

    return attend


def flash_varlen(function: Callable[..., Any]) -> Varlen:
    """``flash_attn_varlen_func`` of FlashAttention 2, or of 3, which may give the lse too."""

    def attend(q: Tensor, k: Tensor, v: Tensor, *lengths: Any) -> Tensor:
        given = function(q, k, v, *lengths, causal=True)
        out: Tensor = given[0] if isinstance(given, tuple) else given
        return out

    return attend


def _new_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, longest_q: int, longest_k: int,
    *, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    assert window_size == (-1, 0) and enable_gqa
    return _flash_func(q, k, v, cu_q, cu_k, longest_q, longest_k, causal=True)


def _flash3_func(*arguments: Any, causal: bool) -> tuple[Tensor, None]:
    return _flash_func(*arguments, causal=causal), None


def _flash_func(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, longest_q: int, longest_k: int,
    *, causal: bool,
) -> Tensor:  # fmt: skip
    assert causal
    parts = []
    for first_q, stop_q, first_k, stop_k in zip(
        *(x.tolist() for x in (cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:])), strict=True
    ):
        n_q, n_k = stop_q - first_q, stop_k - first_k
        assert n_q <= longest_q and n_k <= longest_k
        seen = torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q)
        part = scaled_dot_product_attention(
            q[first_q:stop_q].transpose(0, 1)[None], k[first_k:stop_k].transpose(0, 1)[None],
            v[first_k:stop_k].transpose(0, 1)[None], attn_mask=seen, enable_gqa=True,
        )  # fmt: skip
        parts.append(part[0].transpose(0, 1))
    return torch.cat(parts)
