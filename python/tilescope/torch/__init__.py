# SPDX-License-Identifier: Apache-2.0
"""Attention on torch tensors, forward and backward, by TileScope's kernels.

Importing this registers two operators; `attention` calls them. They work under autograd, torch.compile, autocast,
torch.vmap, checkpointing and torch.export. Second derivatives are refused; so are forward-mode derivatives.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import bad_input
from ..problem import Problem
from . import launches, operators  # which registers them
from .modified import modified_attention
from .paged import paged_attention
from .sdpa import register_sdpa

__all__ = ["attention", "register_sdpa", "register_transformers", "scaled_dot_product_attention"]


_accepted: set[Any] = set()  # ways of calling that Problem.of had nothing against


def _require_tensors(q: Any, k: Any, v: Any) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor like q, not {type(tensor).__name__}")
        if tensor.layout is not torch.strided or tensor.is_nested:
            raise bad_input(name, f"a tensor of {tensor.layout}", "must be dense")
        if tensor.device != q.device:
            raise bad_input(name, f"a tensor on {tensor.device}", f"must lie on {q.device} like q")


def _require_problem(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *call: Any) -> None:
    """Refuses by name, and before anything is traced, what no kernel could take."""
    if torch.compiler.is_compiling():
        return
    key = (q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, *call)
    if key in _accepted:
        return
    for name, tensor in (("k", k), ("v", v)):
        if tensor.dtype != q.dtype:
            raise bad_input(name, f"a tensor of {tensor.dtype}", f"must hold {q.dtype} like q; pools of pages may be of float8_e4m3fn")
    layout, causal, window, scale, dropout = call
    Problem.of(q, k, v, layout=layout, causal=causal, window=window, scale=scale, dropout=dropout)
    if len(_accepted) < launches.MOST_WAYS:
        _accepted.add(key)


def _require_forward_with_table(page_table: Any, key_lengths: Any, dropout: float, seed: Any, backward: Any) -> None:
    for name, given in (("page_table", page_table), ("key_lengths", key_lengths)):
        if given is None:
            raise bad_input(name, "None", "must stand with page_table and key_lengths both")
    for name, given, none in (("dropout", dropout, 0.0), ("seed", seed, None), ("backward", backward, None)):
        if given != none:
            raise bad_input(name, given, "must be left out where there is a page_table")


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    kernel: str | None = None,
    tile: tuple[int, int] | None = None,
    backward: str | None = None,
    layout: str = "bhnd",
    return_lse: bool = False,
    page_table: Any = None,
    key_lengths: Any = None,
    descale_k: Any = None,
    descale_v: Any = None,
    mask: str = "",
    **score_mods: Any,
) -> Any:
    """Softmax attention of q (B, H, Nq, D) over k (B, Hkv, Nk, D) and v (B, Hkv, Nk, Dv), with gradients.

    Arguments as of `tilescope.attention`; masks are aligned bottom-right. Without `seed`, dropout draws one from torch's
    CPU generator. Without `backward`, the fused order, or where torch.use_deterministic_algorithms asks for it one that
    sums the same way each time. In an autocast region q, k and v are cast to its type.

    With `page_table`, integers (B, pages of a sequence), k and v are pools (pages, Hkv, page_size, D), with
    ``layout="bnhd"`` (pages, page_size, Hkv, D), and sequence b has its first ``key_lengths[b]`` keys in the pages
    ``page_table[b]``: as `tilescope.paged_attention`, forward alone. The table is looked at on the host; an entry that
    names no page is refused before anything is launched. Autocast leaves pools as they are. Pools of float8_e4m3fn stand
    beside wider queries, and what they hold is multiplied by ``descale_k`` and ``descale_v``: numbers, or (B, Hkv).
    On CUDA few queries go to gpu:decode; more, on Hopper, of sequences of one length in 16 bits, to gpu:flash3.

    ``mask`` and the score modifiers ``softcap``, ``alibi``, ``log_bias`` and ``learned_sink`` are those of
    `tilescope.attention`; slopes and sinks are tensors (H,), and a sink has a gradient. On CUDA the fastest kernel that
    computes the direction is taken: on Hopper, in 16 bits, gpu:flash3 under a mask, with sinks, and forward with the other
    modifiers, gpu:flash2-mma backward with those. These calls are not traced: torch.compile breaks its graph at them.

    Returns out, or with ``return_lse`` also lse (B, H, Nq) float32, which carries no gradient.
    """
    left, right = window
    _require_tensors(q, k, v)
    if page_table is not None or key_lengths is not None:
        for name in (*(["mask"] if mask else []), *score_mods):
            raise bad_input(name, "given", "must be left out where there is a page_table")
        _require_forward_with_table(page_table, key_lengths, dropout, seed, backward)
        options = launches.Options.of(q, causal=causal, window=(left, right), scale=scale, kernel=kernel, tile=tile)
        out, lse = paged_attention(q, k, v, page_table, key_lengths, options, layout, (descale_k, descale_v))
        return (out, lse) if return_lse else out
    for name, descale in (("descale_k", descale_k), ("descale_v", descale_v)):
        if descale is not None:
            raise bad_input(name, "given", "must be left out without page_table: pools alone have descales")
    if torch.is_autocast_enabled(q.device.type):
        q, k, v = (tensor.to(torch.get_autocast_dtype(q.device.type)) for tensor in (q, k, v))
    drawn = None
    if seed is not None and dropout > 0:
        drawn = torch.tensor(seed, dtype=torch.int64)
    elif dropout > 0:
        drawn = torch.randint(2**63 - 1, (), dtype=torch.int64)
    if mask or score_mods:
        options = launches.Options.of(
            q, causal=causal, window=(left, right), scale=scale, dropout=dropout, kernel=kernel, backward=backward, tile=tile
        )
        out, lse = modified_attention(q, k, v, options, layout, mask, score_mods, drawn)
        return (out, lse) if return_lse else out
    _require_problem(q, k, v, layout, causal, (left, right), scale, dropout)
    if layout == "bnhd":
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    needs_gradient = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    options = launches.Options.of(
        q, causal=causal, window=(left, right), scale=scale, dropout=dropout, kernel=kernel, backward=backward, tile=tile
    )
    out, lse = operators.attention(q, k, v, drawn, options, return_lse or needs_gradient, needs_gradient)
    if layout == "bnhd":
        out = out.transpose(1, 2)
    return (out, lse) if return_lse else out


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    kernel: str | None = None,
    tile: tuple[int, int] | None = None,
) -> torch.Tensor:
    """As torch.nn.functional.scaled_dot_product_attention, on (..., H, L, E) and (..., Hkv, S, E).

    ``is_causal`` is torch's, aligned top-left: query i sees the keys j <= i. Of masks, those of torch.nn.attention.bias
    are understood; a mask tensor is refused.
    """
    causal, right = False, -1
    if attn_mask is not None:
        variant = getattr(getattr(attn_mask, "variant", None), "name", "")
        if variant not in ("LOWER_RIGHT", "UPPER_LEFT"):
            raise bad_input("attn_mask", f"a {type(attn_mask).__name__}", "must be None, or a torch.nn.attention.bias")
        if is_causal:
            raise bad_input("is_causal", "True", "must be left out where attn_mask is given")
        causal, is_causal = variant == "LOWER_RIGHT", variant == "UPPER_LEFT"
    queries, keys = query.shape[-2], key.shape[-2]
    if is_causal and queries < keys:  # nobody sees what comes after the last query
        key, value = key[..., :queries, :], value[..., :queries, :]
    if is_causal and queries <= keys:
        causal = True
    elif is_causal:
        right = queries - keys
    q, k, v = query, key, value
    if query.dim() != 4:
        q, k, v = (_four_dimensions(tensor) for tensor in (q, k, v))
    heads, heads_kv = q.shape[1], k.shape[1]
    if heads != heads_kv and not enable_gqa:
        raise bad_input("enable_gqa", "False", f"key has {heads_kv} heads where query has {heads}")
    out = attention(
        q, k, v, causal=causal, window=(-1, right), scale=scale, dropout=dropout_p, kernel=kernel, tile=tile
    )
    return out if query.dim() == 4 else out.reshape(query.shape)


def _four_dimensions(tensor: torch.Tensor) -> torch.Tensor:
    """(..., H, L, E) with one batch dimension; (N, L, E) and (L, E) have one head."""
    if tensor.dim() == 3:
        return tensor.unsqueeze(1)
    if tensor.dim() == 2:
        return tensor[None, None]
    return tensor.flatten(0, -4) if tensor.dim() > 4 else tensor


def register_transformers(name: str = "tilescope") -> None:
    """Offers `attention` to Hugging Face transformers as ``attn_implementation=name``.

    A sequence of a padded batch, or of those packed side by side whose ``position_ids`` begin anew, is computed alone;
    what stands for padding is 0. Sliding windows, soft caps (Gemma 2) and learned sinks (gpt-oss) are those of the model.
    A mask with a hole is refused.
    """
    from .huggingface import register

    register(name, attention)
