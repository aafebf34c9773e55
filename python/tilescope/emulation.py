# SPDX-License-Identifier: Apache-2.0
"""Anybody's kernels on an emulated device: their bytes by source line, their races and faults, without a GPU."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _native
from .errors import CheckFailed, bad_input
from .records import Record
from .tables import readable, text_table

_Argument = tuple[str, int, int, bytes]  # name; address and bytes of a buffer, or 0, 0 and a parameter's bytes


class Finding:
    """What a kernel does wrong, or at a needless price."""

    def __init__(self, kind: str, is_error: bool, places: Sequence[str], text: str) -> None:
        self.kind = kind  #: out of bounds, hang, fault, race, uninitialised, uncoalesced, bank conflicts or spills
        self.is_error = is_error  #: results may be wrong, rather than slow
        self.places = tuple(places)  #: lines of the source, as in "softmax.py:12"
        self.text = text

    def __repr__(self) -> str:
        return f"<{self.kind} at {', '.join(self.places) or 'no line'}: {self.text}>"


_COUNTS = (
    "instructions", "requests", "asked_bytes", "sectors", "least_sectors", "read_bytes", "write_bytes",
    "least_write_bytes", "l1_hit_bytes", "beyond_tensor_bytes", "shared_requests", "wavefronts", "least_wavefronts",
)  # fmt: skip


def _line(told: Mapping[str, Any]) -> dict[str, Any]:
    """A line with its place as people write it, and the counts that a record leaves out because they are 0."""
    file = told.get("file", "")
    place = f"{Path(file).name}:{told['line']}" if file else f"PTX line {told['line']}"
    return {"place": place, "file": file, "text": "", **dict.fromkeys(_COUNTS, 0), **told}


class Emulation:
    """What came of a launch on the emulated device. Results are in the arrays that were given."""

    def __init__(self, text: str, instructions: int, printed: bytes) -> None:
        #: of schema tilescope.kernels/1: what ``explain``, ``report`` and ``diff`` take
        self.record = Record(text, source="emulate")
        kernel = self.record.json["kernels"][0]
        told = kernel["emulated"]
        self.kernel: str = kernel["name"]
        self.completed: bool = told["completed"]  #: False: what it did wrong ended it, and counts are those up to there
        self.seconds: float = told["seconds"]  #: of the emulation, which say nothing about a device
        self.instructions = instructions  #: of warps
        self.printed = printed.decode(errors="replace")  #: by the kernel's printf
        #: bytes by the names of ``tilescope.counters()``: sm_l2_read_bytes, sm_l2_write_bytes, ...
        self.metrics: dict[str, float] = kernel["measured"]
        self.must_read_bytes: int = told["must_read_bytes"]  #: different sectors that it reads
        self.must_write_bytes: int = told["must_write_bytes"]
        #: a row for each line of the source that touches memory: place, requests, sectors, read_bytes, ...
        self.lines: list[dict[str, Any]] = [_line(line) for line in told["lines"]]
        #: errors first
        self.findings = [
            Finding(found["kind"], found["is_error"], found["places"], found["text"])
            for found in told.get("findings", ())
        ]
        self.notes: list[str] = told.get("notes", [])  #: what of the numbers is modelled, and how; advice

    @property
    def bytes(self) -> float:
        """Bytes between SMs and L2, both ways."""
        return self.metrics["sm_l2_read_bytes"] + self.metrics["sm_l2_write_bytes"]

    @property
    def errors(self) -> list[Finding]:
        """The findings by which results may be wrong."""
        return [finding for finding in self.findings if finding.is_error]

    def sectors_per_request(self, place: str = "") -> float:
        """Of one line of the source, as in "softmax.py:12", or of all: sectors of 32 bytes a warp's request."""
        lines = [line for line in self.lines if not place or line["place"] == place]
        requests = sum(line["requests"] for line in lines)
        if not requests:
            known = ", ".join(line["place"] for line in self.lines if line["requests"])
            raise bad_input("place", place, f"must be a line with requests: {known or 'there is none'}")
        return float(sum(line["sectors"] for line in lines) / requests)

    def check(self) -> Emulation:
        """This, or CheckFailed with every error that was found."""
        if self.errors:
            raise CheckFailed(f"{self.kernel}: " + "; ".join(map(repr, self.errors)))
        return self

    def __repr__(self) -> str:
        moved = f"{readable(self.bytes, 'B')} between SMs and L2"
        return f"<Emulation of {self.kernel}: {moved}, {len(self.errors)} errors, {len(self.findings)} findings>"

    def __str__(self) -> str:
        rows = [
            {
                "line": line["place"],
                "requests": str(line["requests"]),
                "sectors/request": f"{line['sectors'] / line['requests']:.2f}",
                "read": readable(line["read_bytes"], "B"),
                "written": readable(line["write_bytes"], "B"),
            }
            for line in self.lines
            if line["requests"]
        ]
        advice = (note for note in self.notes if note.startswith("advice: "))
        return "\n".join([repr(self), text_table(rows), *map(repr, self.findings), *advice])


def _extent(name: str, given: Any) -> tuple[int, int, int]:
    numbers = (given,) if isinstance(given, int) else given
    if (
        not isinstance(numbers, Sequence)
        or not 1 <= len(numbers) <= 3
        or not all(
            isinstance(number, int) and not isinstance(number, bool) and 0 < number < 1 << 31 for number in numbers
        )
    ):
        raise bad_input(name, repr(given), "must be one to three positive whole numbers")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


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


def emulate(
    ptx_or_file: str | os.PathLike[str],
    kernel: str | None = None,
    *,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any] | Mapping[str, Any] = (),
    cluster: int | Sequence[int] = 1,
    shared: int = 0,
    max_dynamic_shared: int | None = None,
    non_portable_cluster: bool = False,
    races: bool = False,
    uninitialised: Sequence[Any] = (),
    registers: int | None = None,
    emulated_seed: int = 1,
    most_seconds: float = 600,
) -> Emulation:
    """Runs a kernel of PTX text, or of a .ptx file, on the CPU. No GPU, driver or CUDA is needed.

    kernel : its name, or a part that no other name has; not needed where there is but one
    grid, block, cluster : one to three numbers each
    args : in the order of the parameters, or by names of your own in that order. Arrays in host memory (numpy's, torch's)
        become allocations that are checked at both ends, results lie in them afterwards; numbers take the type of their
        parameter; bytes are a struct; None is a null pointer
    shared : dynamic shared memory [B]. max_dynamic_shared, non_portable_cluster : what your host code asks for by
        cudaFuncSetAttribute; launches of more than 48 KiB, or of clusters of more than 8 CTAs, are refused without
    registers : of a thread, where ptxas said: they limit how large a CTA may be, and how many CTAs share an L1
    races : look for races in shared memory, for races between CTAs in global memory, and for reads of what nobody wrote,
        whether or not they did harm. uninitialised : arrays of `args` whose contents no kernel may rely on, as of torch.empty
    emulated_seed : of the order of warps and of the moments at which asynchronous operations take effect
    most_seconds : a launch that will take longer is refused as soon as that shows, with the time; 0: none

    >>> result = tilescope.emulate("add.ptx", grid=8, block=128, args=[x, y, out, 1000])    # doctest: +SKIP
    >>> print(result)                                                                      # doctest: +SKIP

    What the kernel does wrong is in ``.findings``, with the lines of its source; ``.check()`` raises it. Raises BadInput for
    arguments that do not fit, an unknown kernel, and instructions that are not known, all of them at once.
    """
    text = os.fspath(ptx_or_file)
    if ".entry" not in text:
        path = Path(text)
        if "\n" in text or not path.is_file():
            raise bad_input(
                "ptx_or_file", text[:80].partition("\n")[0], "must be PTX with a kernel (.entry), or a file"
            )
        text = path.read_text(errors="replace")
    name, shapes = _native.kernel_parameters(text, kernel or "")
    named = args.items() if isinstance(args, Mapping) else [(f"args[{i}]", arg) for i, arg in enumerate(args)]
    given = list(named)
    if len(given) != len(shapes):
        raise bad_input("args", f"{len(given)} arguments", f"must be {len(shapes)}, as {name} has parameters")
    memory = DeviceMemory()
    memory.say_uninitialised(uninitialised)
    arguments = [
        memory.place(called, value)
        or (called, 0, 0, _scalar(called, value, width, kind, f"parameter {number} of {name} (.{kind or 'b8[]'})"))
        for number, ((called, value), (width, kind)) in enumerate(zip(given, shapes, strict=True))
    ]
    places = _extent("grid", grid), _extent("block", block), _extent("cluster", cluster)
    asked = shared, max_dynamic_shared, non_portable_cluster
    return _run(text, name, places, memory, arguments, [], asked, registers, races, emulated_seed, most_seconds)


def _run(
    ptx: str,
    kernel: str,
    places: tuple[tuple[int, int, int], ...],
    memory: DeviceMemory,
    arguments: Sequence[_Argument],
    reachable: Sequence[_Argument],
    asked: tuple[int, int | None, bool],
    registers: int | None,
    races: bool,
    seed: int,
    most_seconds: float,
) -> Emulation:
    for name, size in (("shared", asked[0]), ("max_dynamic_shared", asked[1] or 0)):
        if not 0 <= size < 1 << 31:
            raise bad_input(name, str(size), "must be 0 ... 232448 B")
    words = ["python3", "-c", f"tilescope.emulate({kernel})"]
    told = _native.emulate(
        words, ptx, kernel, *places, arguments, reachable, memory.uninitialised, *asked, registers, races,
        seed % (1 << 64), most_seconds,
    )  # fmt: skip
    memory.give_back()
    return Emulation(*told)
