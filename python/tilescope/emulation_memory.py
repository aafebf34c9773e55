# SPDX-License-Identifier: Apache-2.0
"""Arrays and numbers as a kernel on the emulated device has them: tensors with Triton's types, memory, parameters."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from . import _native
from .errors import bad_input

_Argument = tuple[str, int, int, bytes]  # name; address and bytes of a buffer, or 0, 0 and a parameter's bytes


class Tensor:
    """An array with an element type that numpy may lack, as Triton asks for it; made by `tensor`."""

    def __init__(self, array: Any, dtype: str) -> None:
        self.array = array
        self.dtype = DType(dtype)
        self.shape = tuple(array.shape)

    def data_ptr(self) -> int:
        return int(self.array.__array_interface__["data"][0])

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def element_size(self) -> int:
        return int(self.array.itemsize)


class DType(str):
    """Triton's name of an element type."""

    @property
    def itemsize(self) -> int:
        return _TRITON_BYTES[self]

    @property
    def is_floating_point(self) -> bool:
        return self.startswith(("fp", "bf"))


_TRITON_NAMES = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float16": "fp16", "float32": "fp32", "float64": "fp64", "bfloat16": "bf16",
    "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "fp8e4m3": "fp8e4nv", "fp8e5m2": "fp8e5",
}  # fmt: skip
_TRITON_BYTES = {
    "i1": 1, "i8": 1, "u8": 1, "fp8e4nv": 1, "fp8e5": 1, "i16": 2, "u16": 2, "fp16": 2, "bf16": 2, "i32": 4, "u32": 4,
    "fp32": 4, "i64": 8, "u64": 8, "fp64": 8,
}  # fmt: skip


def tensor(array: Any, dtype: str = "") -> Tensor:
    """A numpy array for `emulate_triton`, or for Triton's TensorDescriptor.from_tensor, as elements of a type that numpy
    may lack: "bf16" in an array of uint16, "fp8e4m3" or "fp8e5m2" in one of uint8.

    dtype : its own where nothing is said; of as many bytes. Nothing is copied. Raises BadInput for one of another width
    """
    name = dtype or array.dtype.name
    name = _TRITON_NAMES.get(name, name)
    if name not in _TRITON_BYTES or _TRITON_BYTES[name] != array.itemsize:
        known = ", ".join(one for one, size in _TRITON_BYTES.items() if size == array.itemsize)
        raise bad_input("dtype", dtype or array.dtype.name, f"must be a type of {array.itemsize} bytes: {known}")
    return Tensor(array, name)


class DeviceMemory:
    """Copies of arrays where a device would have them: aligned to 256 bytes, which numpy does not, with nothing allocated
    round them. `give_back` copies what kernels wrote."""

    def __init__(self) -> None:
        self._copies: dict[tuple[int, int], tuple[int, bytearray]] = {}
        self._uninitialised: set[int] = set()  # addresses of arrays

    def say_uninitialised(self, arrays: Sequence[Any]) -> None:
        for array in arrays:
            placed = self.place("uninitialised", array)
            if placed is None:
                raise bad_input("uninitialised", type(array).__name__, "must be arrays, those of the arguments")
            self._uninitialised.add(placed[1])

    @property
    def uninitialised(self) -> list[int]:
        return sorted(self._uninitialised)

    def place(self, name: str, array: Any) -> _Argument | None:
        """An array in host memory as an argument; None for what is no array."""
        if isinstance(array, Tensor):
            array = array.array
        if hasattr(array, "data_ptr"):
            if str(getattr(array, "device", "cpu")) != "cpu":
                raise bad_input(name, f"a tensor on {array.device}", "must lie in host memory")
            whole = array.is_contiguous()
            address, size = array.data_ptr(), array.numel() * array.element_size()
        elif hasattr(array, "__setitem__") and hasattr(array, "__array_interface__"):  # which numpy's scalars lack
            whole = array.flags["C_CONTIGUOUS"] or array.flags["F_CONTIGUOUS"]
            address, size = array.__array_interface__["data"][0], array.nbytes
        else:
            return None
        if not whole:
            raise bad_input(name, "an array with gaps", "must be contiguous: numpy.ascontiguousarray makes a copy")
        if size == 0:
            raise bad_input(name, "an array without elements", "must have at least one")
        return name, self._copy_of(address, size), size, b""

    def zeros(self, name: str, size: int) -> _Argument:
        """Memory of the kernel's own; a null pointer where that is none."""
        if size == 0:
            return name, 0, 0, bytes(8)
        memory = bytearray(size + 2 * _GUARD)
        self._copies[0, len(self._copies)] = 0, memory
        return name, self._begin(memory), size, b""

    def _begin(self, memory: bytearray) -> int:
        address = _native.address_of(memory) + _GUARD // 2
        return address + -address % (_GUARD // 2)

    def _copy_of(self, address: int, size: int) -> int:
        offset = address % 16  # by which Triton has chosen its instructions
        if (address, size) not in self._copies:
            memory = bytearray(size + 2 * _GUARD)
            self._copies[address, size] = address, memory
            ctypes.memmove(self._begin(memory) + offset, address, size)
        return self._begin(self._copies[address, size][1]) + offset

    def give_back(self) -> None:
        for (address, size), (_, memory) in self._copies.items():
            if address:
                written = self._begin(memory) + address % 16
                if ctypes.string_at(written, size) != ctypes.string_at(
                    address, size
                ):  # what is constant stays untouched
                    ctypes.memmove(address, written, size)


_GUARD = 512


def _scalar(name: str, value: Any, width: int, kind: str = "", parameter: str = "the parameter") -> bytes:
    """The bytes of a number as a parameter of so many bytes, and of PTX's type `kind` where it says one."""
    if value is None:
        if width != 8 or kind[:1] == "f":
            raise bad_input(name, "None", f"must be a number, as {parameter} is no pointer")
        return bytes(width)
    if hasattr(value, "dtype") and hasattr(value, "item"):  # numpy's scalars; as bits they say their own width
        value = value.item() if kind[:1] in ("u", "s", "f") else bytes(value.tobytes())
    if isinstance(value, int) and kind[:1] == "f":
        value = float(value)
    if isinstance(value, (bytes, bytearray)):
        data = bytes(value)
    elif isinstance(value, int):
        least, most = -(1 << (8 * width - 1)), 1 << (8 * width - (kind[:1] == "s"))  # nvcc has int as .u32 too
        if not least <= value < most:
            raise bad_input(name, str(value), f"must fit {parameter}: {least} ... {most - 1}")
        data = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    elif isinstance(value, float):
        if width not in (2, 4, 8) or kind[:1] in ("u", "s"):
            raise bad_input(name, repr(value), f"must be a whole number, as {parameter} is")
        try:
            data = struct.pack({2: "<e", 4: "<f", 8: "<d"}[width], value)
        except OverflowError:
            raise bad_input(name, repr(value), f"must fit {parameter} of {width} bytes") from None
    else:
        raise bad_input(name, type(value).__name__, "must be an array, a number, bytes, or None for a null pointer")
    if len(data) != width:
        raise bad_input(name, f"a value of {len(data)} bytes", f"must fit {parameter} of {width} bytes")
    return data
