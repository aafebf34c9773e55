# SPDX-License-Identifier: Apache-2.0
"""Arrays in host memory as kernels see them: addresses, strides, and what was given beside q, k and v."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import MissingPackage, bad_input
from .problem import SCORE_MODS

if TYPE_CHECKING:
    from numpy.typing import NDArray

Place = tuple[int, tuple[int, ...]]
NOWHERE: Place = (0, (0, 0, 0, 0))
#: Score modifiers that may be given as an array, a number of each query head, in the order in which kernels take them.
_OF_HEADS = ("alibi", "learned_sink")


def is_torch(array: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def the_numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise MissingPackage("numpy is missing: pip install tilescope[numpy]; models need nothing") from None
    return numpy


def host_array(name: str, array: Any) -> NDArray[Any]:
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


def place_of(array: NDArray[Any], layout: str) -> Place:
    """Address and strides [elements] in the order B, H, N, D."""
    strides = [stride // array.itemsize for stride in array.strides]
    if layout == "bnhd":
        strides[1], strides[2] = strides[2], strides[1]
    return array.__array_interface__["data"][0], tuple(strides)


def places_of(arrays: Sequence[NDArray[Any]], layout: str) -> tuple[Place, Place, Place]:
    first, second, third = (place_of(array, layout) for array in arrays)
    return first, second, third


def lse_place_of(lse: NDArray[Any]) -> Place:
    strides = [stride // lse.itemsize for stride in lse.strides]
    return lse.__array_interface__["data"][0], (*strides, 1)


def as_given(given: Any, result: NDArray[Any]) -> Any:
    """A result as an array of the kind that was given."""
    import numpy as np

    if isinstance(given, np.ndarray):
        return result
    namespace = getattr(given, "__array_namespace__", None)
    if namespace is None:
        return result
    return namespace().asarray(result)


def lengths_of(key_lengths: Any, k: NDArray[Any], layout: str) -> tuple[int, ...]:
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


def descales_of(
    arrays: Sequence[NDArray[Any]], layout: str, block: tuple[int, int] | None, given: Sequence[Any]
) -> tuple[dict[str, Any], list[NDArray[Any]], tuple[Place, Place, Place]]:
    """Fields of a Problem, arrays that must live as long as the places, and places: of descale_q, _k and _v, each a
    number or an array (B, Hkv), of blocks (B, H or Hkv, blocks)."""
    import numpy as np

    fields: dict[str, Any] = {"descale_block": block}
    kept, places = [], [NOWHERE] * 3
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
        places[index] = place_of(held.reshape((*shape[:2], 1, -1)), "bhnd")
    return fields, kept, (places[0], places[1], places[2])


def score_mods_of(
    q: NDArray[Any], layout: str, score_mods: dict[str, Any]
) -> tuple[dict[str, Any], list[NDArray[Any]], tuple[Place, Place]]:
    """Fields of a Problem, arrays that must live as long as the places, and places: of slopes and sinks (H,)."""
    import numpy as np

    fields, kept, places = {}, [], [NOWHERE] * len(_OF_HEADS)
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
        places[_OF_HEADS.index(name)] = numbers_place_of(held)
    return fields, kept, (places[0], places[1])


def numbers_place_of(numbers: NDArray[Any]) -> Place:
    return numbers.__array_interface__["data"][0], (0, 1, 0, 1)


def numpy_type(element_type: str, like: NDArray[Any]) -> Any:
    """The numpy type of an output. Of inputs that ml_dtypes extends numpy by, bfloat16 comes from there too."""
    import numpy as np

    known = {"fp32": np.dtype(np.float32), "fp16": np.dtype(np.float16)}
    if element_type in known:
        return known[element_type]
    if like.dtype.name == "bfloat16":
        return like.dtype
    return np.dtype(sys.modules[like.dtype.type.__module__.partition(".")[0]].bfloat16)


def out_shape(inputs: Sequence[NDArray[Any]]) -> tuple[int, ...]:
    """That of q, with the columns of v."""
    q, _, v = inputs
    return (*q.shape[:-1], v.shape[-1])


def require_like(name: str, array: NDArray[Any], q: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != q.dtype:
        like = "like q" if shape == q.shape else "like q, with the columns of v"
        raise bad_input(name, f"an array of {array.dtype} {array.shape}", f"must hold {q.dtype} {shape} {like}")
