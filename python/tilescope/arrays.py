# SPDX-License-Identifier: Apache-2.0
"""Attention on arrays in host memory: numpy's, or any that numpy can look into."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _native
from .errors import MissingPackage, bad_input
from .kernel_use import kernel_use
from .problem import SCORE_MODS, Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

_Place = tuple[int, tuple[int, ...]]
_NOWHERE: _Place = (0, (0, 0, 0, 0))
#: Score modifiers that may be given as an array, a number of each query head, in the order in which kernels take them.
_OF_HEADS = ("alibi", "learned_sink")


def _is_torch(array: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise MissingPackage("numpy is missing: pip install tilescope[numpy]; models need nothing") from None
    return numpy


def _host_array(name: str, array: Any) -> NDArray[Any]:
    """The array as numpy sees it, without a copy."""
    import numpy as np

    if isinstance(array, np.ndarray):
        seen = array
    elif hasattr(array, "__dlpack_device__"):
        kind, _ = array.__dlpack_device__()
        if int(kind) != 1:
            raise bad_input(
                name,
                f"an array of {type(array).__module__} on a device",
                "must lie in host memory, or be a torch tensor",
            )
        try:
            seen = np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError):  # numpy's DLPack knows no bfloat16; arrays convert themselves
            seen = np.asarray(array)
    else:
        raise TypeError(f"{name} must be a numpy or DLPack array, not {type(array).__name__}")
    if not seen.dtype.isnative:
        raise bad_input(name, f"an array of {seen.dtype}", "must have this machine's byte order")
    return seen if all(stride % seen.itemsize == 0 for stride in seen.strides) else seen.copy()


def _place(array: NDArray[Any], layout: str) -> _Place:
    """Address and strides [elements] in the order B, H, N, D."""
    strides = [stride // array.itemsize for stride in array.strides]
    if layout == "bnhd":
        strides[1], strides[2] = strides[2], strides[1]
    return array.__array_interface__["data"][0], tuple(strides)


def _places(arrays: Sequence[NDArray[Any]], layout: str) -> tuple[_Place, _Place, _Place]:
    first, second, third = (_place(array, layout) for array in arrays)
    return first, second, third


def _lse_place(lse: NDArray[Any]) -> _Place:
    strides = [stride // lse.itemsize for stride in lse.strides]
    return lse.__array_interface__["data"][0], (*strides, 1)


def _like(given: Any, result: NDArray[Any]) -> Any:
    """A result as an array of the kind that was given."""
    import numpy as np

    if isinstance(given, np.ndarray):
        return result
    namespace = getattr(given, "__array_namespace__", None)
    if namespace is None:
        return result
    return namespace().asarray(result)


def _lengths_of(key_lengths: Any, k: NDArray[Any], layout: str) -> tuple[int, ...]:
    """Lengths as they are, or of a boolean (B, Nk) whose rows are true up to the padding."""
    if key_lengths is None:
        return ()
    import numpy as np

    given = np.asarray(key_lengths)
    if given.dtype != np.bool_:
        return tuple(key_lengths)
    shape = (k.shape[0], k.shape[2 if layout == "bhnd" else 1])
    if given.shape != shape:
        raise bad_input("key_lengths", f"booleans of shape {given.shape}", f"must have the shape {shape}")
    lengths = given.sum(axis=1)
    if not np.array_equal(given, np.arange(shape[1]) < lengths[:, None]):
        raise bad_input("key_lengths", "booleans with a hole", "must be true up to the padding, false from there on")
    return tuple(int(length) for length in lengths)


def _descales_of(
    arrays: Sequence[NDArray[Any]], layout: str, block: tuple[int, int] | None, given: Sequence[Any]
) -> tuple[dict[str, Any], list[NDArray[Any]], tuple[_Place, _Place, _Place]]:
    """Fields of a Problem, arrays that must live as long as the places, and places: of descale_q, _k and _v, each a
    number or an array (B, Hkv), of blocks (B, H or Hkv, blocks)."""
    import numpy as np

    fields: dict[str, Any] = {"descale_block": block}
    kept, places = [], [_NOWHERE] * 3
    for index, (name, descale) in enumerate(zip(("descale_q", "descale_k", "descale_v"), given)):
        if descale is None or isinstance(descale, (str, int, float)):
            fields[name] = 1.0 if descale is None else descale
            continue
        if layout not in ("bhnd", "bnhd") or any(array.ndim != 4 for array in arrays) or (block and min(block) < 1):
            continue  # no shape to hold it to; Problem.of says what is wrong
        held = np.ascontiguousarray(descale, np.float32)
        shape: tuple[int, ...] = (arrays[0].shape[0], arrays[1].shape[1 if layout == "bhnd" else 2])
        if block is not None:
            heads, rows = arrays[index].shape[1:3] if layout == "bhnd" else arrays[index].shape[2:0:-1]
            shape = (arrays[0].shape[0], heads, -(-rows // block[min(index, 1)]))
        if held.shape != shape:
            raise bad_input(name, f"an array of shape {held.shape}", f"must be a number or have the shape {shape}")
        fields[name] = "given"
        kept.append(held)
        places[index] = _place(held.reshape((*shape[:2], 1, -1)), "bhnd")
    return fields, kept, (places[0], places[1], places[2])


def _score_mods_of(
    q: NDArray[Any], layout: str, score_mods: dict[str, Any]
) -> tuple[dict[str, Any], list[NDArray[Any]], tuple[_Place, _Place]]:
    """Fields of a Problem, arrays that must live as long as the places, and places: of slopes and sinks (H,)."""
    import numpy as np

    fields, kept, places = {}, [], [_NOWHERE] * len(_OF_HEADS)
    for name, value in score_mods.items():
        if name not in SCORE_MODS:
            raise TypeError(f"there is no argument {name!r}; score modifiers are {', '.join(SCORE_MODS)}")
        fields[name] = value
        if name == "learned_sink" and value is True:
            raise bad_input(name, "True", "must be an array of shape (H,): the sinks are inputs")
        if name not in _OF_HEADS or value is None or isinstance(value, bool):
            fields[name] = value if name not in _OF_HEADS else bool(value)
            continue
        held = np.ascontiguousarray(value, np.float32)
        heads = q.shape[1 if layout == "bhnd" else 2] if q.ndim == 4 else 0
        if held.shape != (heads,):
            raise bad_input(name, f"an array of shape {held.shape}", f"must have the shape ({heads},)")
        fields[name] = True
        kept.append(held)
        places[_OF_HEADS.index(name)] = _numbers_place(held)
    return fields, kept, (places[0], places[1])


def _numbers_place(numbers: NDArray[Any]) -> _Place:
    return numbers.__array_interface__["data"][0], (0, 1, 0, 1)


def _problem(
    arrays: Sequence[Any], layout: str, dropout: float, seed: int | None, key_lengths: Any, **fields: Any
) -> Problem:
    if dropout > 0 and seed is None:
        raise bad_input("seed", "None", "must be given with dropout: the backward pass drops what the forward pass did")
    if layout in ("bhnd", "bnhd") and len(arrays[1].shape) == 4:  # else Problem.of says what is wrong
        fields["key_lengths"] = _lengths_of(key_lengths, arrays[1], layout)
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
    if _is_torch(q):
        from . import torch as on_torch

        if key_lengths is not None:
            raise bad_input("key_lengths", "with torch tensors", "must be left out: their operators know no padding")
        if any(descale is not None for descale in (descale_q, descale_k, descale_v, descale_block)):
            raise bad_input("descale_q", "with torch tensors", "must be left out: their operators know no descales")
        return on_torch.attention(
            q, k, v, causal=causal, window=window, scale=scale, dropout=dropout, seed=seed, kernel=kernel,
            tile=tile, backward=backward, layout=layout, return_lse=return_lse, mask=mask, **score_mods,
        )  # fmt: skip
    np = _numpy()

    arrays = [_host_array(name, array) for name, array in (("q", q), ("k", k), ("v", v))]
    fields, _kept, descales = _descales_of(arrays, layout, descale_block, (descale_q, descale_k, descale_v))
    mods, _numbers, numbers = _score_mods_of(arrays[0], layout, score_mods)
    problem = _problem(
        arrays, layout, dropout, seed, key_lengths, causal=causal, window=window, mask=mask, scale=scale, **fields, **mods
    )  # fmt: skip
    out = np.empty(_out_shape(arrays), _numpy_type(problem._handle.output_type(), arrays[0]))
    lse = np.empty((problem.batch, problem.heads, problem.seqlen_q), np.float32)
    _native.attention_forward(
        problem._handle,
        kernel_use(kernel, tile, backward),
        *_places(arrays, layout),
        _place(out, layout),
        _lse_place(lse) if return_lse else _NOWHERE,
        descales,
        numbers,
    )
    return (_like(q, out), _like(q, lse)) if return_lse else _like(q, out)


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
    np = _numpy()

    names = ("q", "k", "v", "dout", "out")
    arrays = {name: _host_array(name, array) for name, array in zip(names, (q, k, v, dout, out))}
    inputs = [arrays[name] for name in ("q", "k", "v")]
    mods, _numbers, numbers = _score_mods_of(arrays["q"], layout, score_mods)
    problem = _problem(
        inputs, layout, dropout, seed, key_lengths, causal=causal, window=window, mask=mask, scale=scale, **mods
    )  # fmt: skip
    for name in ("dout", "out"):
        _require_like(name, arrays[name], arrays["q"], _out_shape(inputs))
    sums = _host_array("lse", lse)
    shape = (problem.batch, problem.heads, problem.seqlen_q)
    if sums.shape != shape or sums.dtype != np.float32:
        raise bad_input("lse", f"an array of {sums.dtype} {sums.shape}", f"must hold float32 {shape}")
    gradients = [np.empty_like(arrays[name], order="C", subok=False) for name in ("q", "k", "v")]
    dsink = np.empty(problem.heads, np.float32)
    _native.attention_backward(
        problem._handle,
        kernel_use(kernel, tile, backward),
        _place(arrays["dout"], layout),
        *_places([arrays[name] for name in ("q", "k", "v")], layout),
        _place(arrays["out"], layout),
        _lse_place(sums),
        *_places(gradients, layout),
        numbers,
        _numbers_place(dsink),
    )
    results = [*gradients, dsink] if problem.learned_sink else gradients
    return tuple(_like(q, result) for result in results)


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
    np = _numpy()

    arrays = [_host_array(name, array) for name, array in (("q", q), ("k", k), ("v", v))]
    fields, _kept, descales = _descales_of(arrays, layout, descale_block, (descale_q, descale_k, descale_v))
    mods, _numbers, numbers = _score_mods_of(arrays[0], layout, score_mods)
    problem = _problem(
        arrays, layout, dropout, seed, key_lengths, causal=causal, window=window, mask=mask, scale=scale, **fields, **mods
    )  # fmt: skip
    shapes = {"out": _out_shape(arrays), "lse": (problem.batch, problem.heads, problem.seqlen_q)}
    gradient = _NOWHERE
    if dout is not None:
        given = _host_array("dout", dout)
        _require_like("dout", given, arrays[0], shapes["out"])
        gradient = _place(given, layout)
        shapes.update(dq=arrays[0].shape, dk=arrays[1].shape, dv=arrays[2].shape)
        if problem.learned_sink:
            shapes["dsink"] = (problem.heads,)
    results = {name: np.empty(shape, np.float64) for name, shape in shapes.items()}
    _native.exact(
        problem._handle,
        *_places(arrays, layout),
        gradient,
        _place(results["out"], layout),
        _lse_place(results["lse"]),
        *(_places([results[name] for name in ("dq", "dk", "dv")], layout) if "dq" in results else (_NOWHERE,) * 3),
        descales,
        numbers,
        _numbers_place(results["dsink"]) if "dsink" in results else _NOWHERE,
    )
    return results


def _numpy_type(element_type: str, like: NDArray[Any]) -> Any:
    """The numpy type of an output. Of inputs that ml_dtypes extends numpy by, bfloat16 comes from there too."""
    import numpy as np

    known = {"fp32": np.dtype(np.float32), "fp16": np.dtype(np.float16)}
    if element_type in known:
        return known[element_type]
    if like.dtype.name == "bfloat16":
        return like.dtype
    return np.dtype(sys.modules[like.dtype.type.__module__.partition(".")[0]].bfloat16)


def _out_shape(inputs: Sequence[NDArray[Any]]) -> tuple[int, ...]:
    """That of q, with the columns of v."""
    q, _, v = inputs
    return (*q.shape[:-1], v.shape[-1])


def _require_like(name: str, array: NDArray[Any], q: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != q.dtype:
        like = "like q" if shape == q.shape else "like q, with the columns of v"
        raise bad_input(name, f"an array of {array.dtype} {array.shape}", f"must hold {q.dtype} {shape} {like}")
