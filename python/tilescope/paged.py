# SPDX-License-Identifier: Apache-2.0
"""Attention over keys and values that lie in pages, as serving engines keep them (PagedAttention, arXiv:2309.06180)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from . import _native
from .errors import BadInput, bad_input
from .kernel_use import kernel_use
from .places import NOWHERE, as_given, descales_of, host_array, is_torch, lse_place_of, numpy_type, place_of, the_numpy
from .problem import Problem, element_type_of, require_stored_like

#: How a layout reads q and the pools.
_READ_AS = {
    "bhnd": ("(B, H, Nq, D)", "(pages, Hkv, page_size, D)"),
    "bnhd": ("(B, Nq, H, D)", "(pages, page_size, Hkv, D)"),
}


def _refuse(name: str, array: Any, allowed: str, layout: str) -> BadInput:
    of_q, of_pools = _READ_AS[layout]
    other = "bnhd" if layout == "bhnd" else "bhnd"
    read = f'layout="{layout}" reads q as {of_q} and pools as {of_pools}, layout="{other}" pools as {_READ_AS[other][1]}'
    return bad_input(name, f"an array of shape {tuple(array.shape)}", f"{allowed}; {read}")


def _shape(name: str, array: Any, layout: str) -> tuple[int, ...]:
    if array.ndim != 4:
        raise _refuse(name, array, "must have four dimensions", layout)
    first, second, third, columns = array.shape
    return (first, second, third, columns) if layout == "bhnd" else (first, third, second, columns)


def _table_of(page_table: Any, batch: int) -> Any:
    np = the_numpy()
    table = np.asarray(page_table)
    if table.ndim != 2 or table.shape[0] != batch or table.shape[1] == 0:
        raise bad_input("page_table", f"an array of shape {table.shape}", f"must have the shape ({batch}, pages)")
    if table.dtype.kind not in "iu":
        raise bad_input("page_table", f"an array of {table.dtype}", "must hold integers")
    if table.size and (table.max() >= 2**31 or table.min() < -(2**31)):
        raise bad_input("page_table", int(abs(table).max()), "must fit 32 bits")
    return np.ascontiguousarray(table, np.int32)


def _lengths_of(key_lengths: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(operator.index(length) for length in key_lengths)
    except TypeError:
        raise TypeError(f"key_lengths must be integers, one a sequence, not {key_lengths!r}") from None


def _checked(
    q: Any, k_pages: Any, v_pages: Any, page_table: Any, key_lengths: Sequence[int], *, causal: bool,
    window: tuple[int, int], scale: float | None, layout: str, **descales: Any,
) -> tuple[Problem, Any]:  # fmt: skip
    """The problem of arrays or tensors, and the table as int32 (B, pages of a sequence) in host memory.

    Raises BadInput for shapes that do not go together and for an entry that names no page.
    """
    if layout not in ("bhnd", "bnhd"):
        raise bad_input("layout", repr(layout), "must be bhnd or bnhd")
    (batch, heads, seqlen_q, head_dim), of_k, of_v = (
        _shape(name, array, layout) for name, array in (("q", q), ("k_pages", k_pages), ("v_pages", v_pages))
    )
    if of_k[3] != head_dim:
        raise _refuse("k_pages", k_pages, f"must have the head size of q, {head_dim}", layout)
    if of_v[:3] != of_k[:3]:
        raise _refuse("v_pages", v_pages, f"must have pages and heads as k_pages, {tuple(k_pages.shape)}", layout)
    for name, array in (("k_pages", k_pages), ("v_pages", v_pages)):
        try:
            require_stored_like(q, k_pages, name[0], array)
        except BadInput as error:
            raise bad_input(name, f"an array of {array.dtype}", str(error).partition(": ")[2]) from None
    table = _table_of(page_table, batch)
    lengths = _lengths_of(key_lengths)
    if len(set(lengths)) > 1 and (tuple(window) != (-1, -1) or (causal and seqlen_q > 1)):
        raise bad_input(
            "window" if tuple(window) != (-1, -1) else "causal",
            window if tuple(window) != (-1, -1) else causal,
            "must be left out where lengths differ: masks are aligned with the end of the longest sequence, not with each",
        )
    pages, heads_kv, page_size, _ = of_k
    longest = max((1, *lengths))
    padding = () if lengths == (longest,) * batch else lengths  # of one length there is none, which every kernel with pages knows
    try:
        problem = Problem(
            batch=batch, heads=heads, heads_kv=heads_kv, seqlen_q=seqlen_q, seqlen_k=longest, head_dim=head_dim,
            head_dim_v=of_v[3], dtype=element_type_of(q.dtype), kv_dtype=element_type_of(k_pages.dtype), causal=causal, window=window, scale=scale,
            key_lengths=padding, page_size=page_size, **descales,
        )  # fmt: skip
    except BadInput as error:
        if error.field not in ("heads_kv", "page_size"):
            raise
        raise _refuse("k_pages", k_pages, f"has {error}", layout) from None
    most = table.shape[1] * page_size
    if len(lengths) == batch and max(lengths) > most:
        raise bad_input("key_lengths", max(lengths), f"must not exceed {table.shape[1]} pages of {page_size} keys, {most}")
    _native.require_pages(problem._handle, _pages_of(table, pages))
    return problem, table


def _pages_of(table: Any, pages: int) -> tuple[int, int, int]:
    return table.__array_interface__["data"][0], table.shape[1], pages


def paged_attention(
    q: Any,
    k_pages: Any,
    v_pages: Any,
    page_table: Any,
    key_lengths: Sequence[int],
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    descale_k: Any = None,
    descale_v: Any = None,
    kernel: str | None = None,
    tile: tuple[int, int] | None = None,
    layout: str = "bhnd",
    return_lse: bool = False,
) -> Any:
    """Softmax attention of q over keys and values in pages: what `attention` gives for them side by side, to the bit.

    Parameters
    ----------
    q : array, (B, H, Nq, D)
        float32, float16, bfloat16 or float8; any strides. With ``layout="bnhd"``: (B, Nq, H, D).
    k_pages, v_pages : array, (pages, Hkv, page_size, D)
        Pools of the same type, or of float8_e4m3fn beside wider queries, where Hkv divides H and page_size is a power of 2 in 8 ... 4096; v may have columns of
        its own number. With ``layout="bnhd"``: (pages, page_size, Hkv, D).
    page_table : array of integers, (B, pages of a sequence)
        Keys i * page_size ... (i + 1) * page_size - 1 of sequence b lie in page ``page_table[b, i]``. Entries behind
        the last key of a sequence are not read.
    key_lengths : sequence of int, (B,)
        Keys of each sequence, 0 among them.
    causal, window, scale
        As of `Problem`. Masks are aligned with the end of the longest sequence: where lengths differ, a window, and a
        causal mask of several queries, are refused.
    descale_k, descale_v : float, or array (B, Hkv)
        float8 pools: what the stored elements are multiplied by; default 1.
    kernel : str
        ``cpu:flash2`` by default. On a GPU ``gpu:decode``, ``gpu:flash2-mma`` and ``gpu:flash3`` read pages, the last on Hopper, in 16 bits, of sequences of one
        length.

    Returns
    -------
    out, shaped as q and of its type (bfloat16 for float8); with ``return_lse`` also lse, (B, H, Nq) float32.

    Raises BadInput for shapes that do not go together and for an entry that names no page, before anything is read.
    """
    np = the_numpy()
    if any(is_torch(array) for array in (q, k_pages, v_pages)):
        raise bad_input("q", "a torch tensor", "must be an array in host memory; tilescope.torch.attention takes tensors")
    arrays = [host_array(name, array) for name, array in (("q", q), ("k_pages", k_pages), ("v_pages", v_pages))]
    fields, _kept, descales = descales_of(arrays, layout, None, (None, descale_k, descale_v))
    problem, table = _checked(
        *arrays, page_table, key_lengths, causal=causal, window=window, scale=scale, layout=layout, **fields
    )  # fmt: skip
    out = np.empty((*arrays[0].shape[:3], arrays[2].shape[3]), numpy_type(problem._handle.output_type(), arrays[0]))
    lse = np.empty((problem.batch, problem.heads, problem.seqlen_q), np.float32)
    _native.attention_forward(
        problem._handle,
        kernel_use(kernel, tile, None),
        *(place_of(array, layout) for array in arrays),
        place_of(out, layout),
        lse_place_of(lse) if return_lse else NOWHERE,
        descales,
        pages=_pages_of(table, arrays[1].shape[0]),
    )
    return (as_given(q, out), as_given(q, lse)) if return_lse else as_given(q, out)
