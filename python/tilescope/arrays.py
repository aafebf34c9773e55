# SPDX-License-Identifier: Apache-2.0
"""Attention on arrays in host memory: numpy's, or any that numpy can look into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _native
from .errors import bad_input
from .kernel_use import kernel_use
from .places import (
    NOWHERE,
    as_given,
    descales_of,
    host_array,
    is_torch,
    lengths_of,
    lse_place_of,
    numbers_place_of,
    numpy_type,
    out_shape,
    place_of,
    places_of,
    require_like,
    score_mods_of,
    the_numpy,
)  # fmt: skip
from .problem import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _problem(
    arrays: Sequence[Any], layout: str, dropout: float, seed: int | None, key_lengths: Any, **fields: Any
) -> Problem:
    if dropout > 0 and seed is None:
        raise bad_input("seed", "None", "must be given with dropout: the backward pass drops what the forward pass did")
    if layout in ("bhnd", "bnhd") and len(arrays[1].shape) == 4:  # else Problem.of says what is wrong
        fields["key_lengths"] = lengths_of(key_lengths, arrays[1], layout)
    return Problem.of(*arrays, layout=layout, dropout=dropout, seed=seed or 0, **fields)


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    key_lengths: Any = None,
    mask: str = "",
    descale_q: Any = None,
    descale_k: Any = None,
    descale_v: Any = None,
    descale_block: tuple[int, int] | None = None,
    kernel: str | None = None,
    tile: tuple[int, int] | None = None,
    backward: str | None = None,
    layout: str = "bhnd",
    return_lse: bool = False,
    **score_mods: Any,
) -> Any:
    """Softmax attention of q over k and v by one of TileScope's kernels.

    Parameters
    ----------
    q : array, (B, H, Nq, D)
        float32, float16, bfloat16 or float8; any strides. k, v: (B, Hkv, Nk, D) of the same type, or both of
        float8_e4m3fn beside wider queries, where Hkv divides H, and v may have columns of its own number, which the output then has. With ``layout="bnhd"``:
        (B, Nq, H, D) and (B, Nk, Hkv, D).
    causal, window, mask, scale, dropout, seed
        As of `Problem`: a mask is a text such as ``"sink:4"`` or ``"documents:100,300"``. Dropout needs a seed.
    key_lengths : sequence of int, or boolean array (B, Nk)
        Keys of each batch entry; those behind are padding, which no query sees. Booleans are true up to it.
    descale_q, descale_k, descale_v : float, or array (B, Hkv)
        float8: what the stored elements are multiplied by; default 1.
    descale_block : (int, int)
        Rows of q, and of k and v, with a descale of their own: a kernel's tile. The arrays are then (B, H, blocks)
        for q and (B, Hkv, blocks) for k and v.
    kernel : str
        ``tilescope.kernels()`` lists them; default ``cpu:flash2``.
    tile : (block_m, block_n)
        Rows of q and of k in a tile; default: the kernel's choice.
    backward : str
        Order of the backward pass that will be asked for: fused, split, q-outer or single-launch. Forward does not depend on it.

    softcap : float
        Scores s become ``softcap * tanh(s / softcap)``; 0: they stay as they are.
    alibi : bool, or array (H,)
        Scores lose a slope of their head's, by default the paper's, for every key from the diagonal.
    log_bias : float
        Scores lose ``log_bias * log(1 + keys from the diagonal)``; 0: nothing.
    learned_sink : array (H,)
        A term of each head's softmax that has no value. A row that sees no key has it as lse.

    Returns
    -------
    out, shaped as q and of its type (bfloat16 for float8), in C order; with ``return_lse`` also lse, (B, H, Nq)
    float32, the natural logarithm of each row's sum of exponentials, -inf for a row that sees no key.

    Raises BadInput for shapes, types and choices that do not go together, UnknownName for a kernel that there is not,
    OutOfMemory, and MachineLacks for one that cannot run here. A torch tensor is handed to `tilescope.torch.attention`.
    """
    if is_torch(q):
        from . import torch as on_torch

        if key_lengths is not None:
            raise bad_input("key_lengths", "with torch tensors", "must be left out: their operators know no padding")
        if any(descale is not None for descale in (descale_q, descale_k, descale_v, descale_block)):
            raise bad_input("descale_q", "with torch tensors", "must be left out: their operators know no descales")
        return on_torch.attention(
            q, k, v, causal=causal, window=window, scale=scale, dropout=dropout, seed=seed, kernel=kernel,
            tile=tile, backward=backward, layout=layout, return_lse=return_lse, mask=mask, **score_mods,
        )  # fmt: skip
    np = the_numpy()

    arrays = [host_array(name, array) for name, array in (("q", q), ("k", k), ("v", v))]
    fields, _kept, descales = descales_of(arrays, layout, descale_block, (descale_q, descale_k, descale_v))
    mods, _numbers, numbers = score_mods_of(arrays[0], layout, score_mods)
    problem = _problem(
        arrays, layout, dropout, seed, key_lengths, causal=causal, window=window, mask=mask, scale=scale, **fields, **mods
    )  # fmt: skip
    out = np.empty(out_shape(arrays), numpy_type(problem._handle.output_type(), arrays[0]))
    lse = np.empty((problem.batch, problem.heads, problem.seqlen_q), np.float32)
    _native.attention_forward(
        problem._handle,
        kernel_use(kernel, tile, backward),
        *places_of(arrays, layout),
        place_of(out, layout),
        lse_place_of(lse) if return_lse else NOWHERE,
        descales,
        numbers,
    )
    return (as_given(q, out), as_given(q, lse)) if return_lse else as_given(q, out)


def attention_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    key_lengths: Any = None,
    mask: str = "",
    kernel: str | None = None,
    tile: tuple[int, int] | None = None,
    backward: str | None = None,
    layout: str = "bhnd",
    **score_mods: Any,
) -> tuple[Any, ...]:
    """Gradients (dq, dk, dv), shaped as q, k and v, from that of the output; with a learned_sink also dsink, (H,).

    dout and out are shaped as q, lse is (B, H, Nq) float32: what `attention` gave with ``return_lse=True`` and the
    same arguments. ``backward``: fused (default), split (deterministic on any machine), q-outer, single-launch (split's
    two passes in one launch) or ordered (fused, with reductions in a fixed order: deterministic on any machine).
    Raises as `attention`, BadInput too for a dout, out or lse of another shape or type.
    """
    np = the_numpy()

    names = ("q", "k", "v", "dout", "out")
    arrays = {name: host_array(name, array) for name, array in zip(names, (q, k, v, dout, out))}
    inputs = [arrays[name] for name in ("q", "k", "v")]
    mods, _numbers, numbers = score_mods_of(arrays["q"], layout, score_mods)
    problem = _problem(
        inputs, layout, dropout, seed, key_lengths, causal=causal, window=window, mask=mask, scale=scale, **mods
    )  # fmt: skip
    for name in ("dout", "out"):
        require_like(name, arrays[name], arrays["q"], out_shape(inputs))
    sums = host_array("lse", lse)
    shape = (problem.batch, problem.heads, problem.seqlen_q)
    if sums.shape != shape or sums.dtype != np.float32:
        raise bad_input("lse", f"an array of {sums.dtype} {sums.shape}", f"must hold float32 {shape}")
    gradients = [np.empty_like(arrays[name], order="C", subok=False) for name in ("q", "k", "v")]
    dsink = np.empty(problem.heads, np.float32)
    _native.attention_backward(
        problem._handle,
        kernel_use(kernel, tile, backward),
        place_of(arrays["dout"], layout),
        *places_of([arrays[name] for name in ("q", "k", "v")], layout),
        place_of(arrays["out"], layout),
        lse_place_of(sums),
        *places_of(gradients, layout),
        numbers,
        numbers_place_of(dsink),
    )
    results = [*gradients, dsink] if problem.learned_sink else gradients
    return tuple(as_given(q, result) for result in results)


def exact_attention(
    q: Any,
    k: Any,
    v: Any,
    dout: Any = None,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    key_lengths: Any = None,
    mask: str = "",
    descale_q: Any = None,
    descale_k: Any = None,
    descale_v: Any = None,
    descale_block: tuple[int, int] | None = None,
    layout: str = "bhnd",
    **score_mods: Any,
) -> dict[str, NDArray[Any]]:
    """The judge: attention by its definition in fp64, untiled, from the inputs as they are, times their descales.

    Returns a dictionary of float64 arrays: out and lse; with dout also dq, dk and dv, and of a learned_sink dsink. Shapes as of `attention`.
    Raises BadInput for shapes and types that do not go together, OutOfMemory.
    """
    np = the_numpy()

    arrays = [host_array(name, array) for name, array in (("q", q), ("k", k), ("v", v))]
    fields, _kept, descales = descales_of(arrays, layout, descale_block, (descale_q, descale_k, descale_v))
    mods, _numbers, numbers = score_mods_of(arrays[0], layout, score_mods)
    problem = _problem(
        arrays, layout, dropout, seed, key_lengths, causal=causal, window=window, mask=mask, scale=scale, **fields, **mods
    )  # fmt: skip
    shapes = {"out": out_shape(arrays), "lse": (problem.batch, problem.heads, problem.seqlen_q)}
    gradient = NOWHERE
    if dout is not None:
        given = host_array("dout", dout)
        require_like("dout", given, arrays[0], shapes["out"])
        gradient = place_of(given, layout)
        shapes.update(dq=arrays[0].shape, dk=arrays[1].shape, dv=arrays[2].shape)
        if problem.learned_sink:
            shapes["dsink"] = (problem.heads,)
    results = {name: np.empty(shape, np.float64) for name, shape in shapes.items()}
    _native.exact(
        problem._handle,
        *places_of(arrays, layout),
        gradient,
        place_of(results["out"], layout),
        lse_place_of(results["lse"]),
        *(places_of([results[name] for name in ("dq", "dk", "dv")], layout) if "dq" in results else (NOWHERE,) * 3),
        descales,
        numbers,
        numbers_place_of(results["dsink"]) if "dsink" in results else NOWHERE,
    )
    return results
