# SPDX-License-Identifier: Apache-2.0
"""TileScope's kernels behind torch.nn.functional.scaled_dot_product_attention itself, for models that call nothing else.

Torch lets a provider put its own functions in the place of those aten operators to which its attention goes: on CUDA the
flash back end, which torch takes where its conditions hold and the mask is causal or none; on CPU likewise.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from ..errors import MachineLacks, bad_input
from . import launches
from .launches import Options

_FLASH = "_scaled_dot_product_flash_attention"
_ON_CPU = f"{_FLASH}_for_cpu"


def _require_what_kernels_do(dropout_p: float, attn_mask: Any = None) -> None:
    if dropout_p > 0:
        raise bad_input("dropout_p", dropout_p, "must be 0 here; tilescope.torch.attention drops")
    if attn_mask is not None:
        raise bad_input("attn_mask", "a tensor", "must be None: no kernel of TileScope reads a mask")


def _top_left(query: torch.Tensor, key: torch.Tensor, is_causal: bool, scale: float | None) -> tuple[int, Any]:
    """Torch's causal mask, aligned top-left, as one of ours: how many keys somebody sees, and options."""
    queries, keys = query.shape[2], key.shape[2]
    if is_causal and queries > keys:
        return keys, Options.of(query, window=(-1, queries - keys), scale=scale)
    return min(queries, keys) if is_causal else keys, Options.of(query, causal=is_causal, scale=scale)


def _like(gradients: tuple[torch.Tensor, ...], *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Laid out as torch's own are, on which compiled code relies."""
    return tuple(
        gradient if gradient.stride() == tensor.stride() else torch.empty_like(tensor).copy_(gradient)
        for gradient, tensor in zip(gradients, inputs)
    )


def _forward(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    # Torch itself sends a causal mask here where lengths are equal; torch.nn.attention.bias means bottom-right.
    _require_what_kernels_do(dropout_p)
    out, lse = launches.forward(query, key, value, None, Options.of(query, causal=is_causal, scale=scale), True)
    state = torch.zeros(2, dtype=torch.uint64, device=query.device)
    unused = torch.empty((), dtype=torch.uint64, device=query.device)
    return out, lse, None, None, query.shape[2], key.shape[2], state, unused, query.new_empty(0)


def _backward(
    grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
    philox_seed, philox_offset, *, scale=None,
):  # fmt: skip
    options = Options.of(query, causal=is_causal, scale=scale)
    gradients = launches.backward(grad_out, query, key, value, out, logsumexp, None, options)
    return _like(gradients, query, key, value)


def _forward_on_cpu(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    _require_what_kernels_do(dropout_p, attn_mask)
    seen, options = _top_left(query, key, is_causal, scale)
    out, lse = launches.forward(query, key[:, :, :seen], value[:, :, :seen], None, options, True)
    return out, _rows_first(lse)


def _backward_on_cpu(
    grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None
):  # fmt: skip
    seen, options = _top_left(query, key, is_causal, scale)
    k, v = key[:, :, :seen], value[:, :, :seen]
    dq, dk, dv = launches.backward(grad_out, query, k, v, out, logsumexp.contiguous(), None, options)
    unseen = (0, 0, 0, key.shape[2] - seen)
    return tuple(map(_rows_first, (dq, *(torch.nn.functional.pad(gradient, unseen) for gradient in (dk, dv)))))


def _rows_first(tensor: torch.Tensor) -> torch.Tensor:
    """(B, H, N, ...) that lies as (B, N, H, ...), as torch's CPU kernels leave it."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


class _InPlace:
    """While it lives, torch calls the functions above; `remove` brings its own back."""

    def __init__(self) -> None:
        self._library: Any = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():  # that something is overridden, which has just been asked for
            warnings.filterwarnings("ignore", "Warning only once for all operators")
            for name, function, key in (
                (_FLASH, _forward, "CUDA"),
                (f"{_FLASH}_backward", _backward, "CUDA"),
                (_ON_CPU, _forward_on_cpu, "CPU"),
                (f"{_ON_CPU}_backward", _backward_on_cpu, "CPU"),
            ):
                self._library.impl(name, function, key, allow_override=True)

    def remove(self) -> None:
        self._library = None


def register_sdpa(name: str = "tilescope") -> None:
    """Offers TileScope's kernels to torch under `name`; nothing changes until they are asked for:

    >>> register_sdpa()                                                # doctest: +SKIP
    >>> torch.nn.attention.activate_flash_attention_impl("tilescope")  # doctest: +SKIP
    >>> torch.nn.attention.restore_flash_attention_impl()              # doctest: +SKIP

    From then on torch.nn.functional.scaled_dot_product_attention computes with them wherever it would take its flash
    kernels, forward and backward, and so does every model that calls it. Dropout, and on the CPU masks, are refused.

    Raises MachineLacks where torch has no such registry (before 2.10).
    """
    register = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if register is None:
        raise MachineLacks(f"torch {torch.__version__} takes no attention of others: pip install 'torch >= 2.10'")
    register(name, register_fn=_InPlace)
