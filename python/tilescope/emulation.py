# SPDX-License-Identifier: Apache-2.0
"""Anybody's kernels on an emulated device: their bytes by source line, their races and faults, without a GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _native
from .emulation_memory import DeviceMemory, _Argument, _scalar
from .errors import CheckFailed, bad_input
from .records import Record
from .tables import readable, text_table


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
        errors, findings = len(self.errors), len(self.findings)
        told = f"{errors} error{'s' * (errors != 1)}, {findings} finding{'s' * (findings != 1)}"
        return f"<Emulation of {self.kernel}: {moved}, {told}>"

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
    sass: str = "",
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
    sass : what `cuobjdump -sass` or `nvdisasm -c` prints of what ptxas made: which stores stand in a row, that L1 may merge
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
    return _run(text, name, places, memory, arguments, [], asked, registers, sass, races, emulated_seed, most_seconds)


def _run(
    ptx: str,
    kernel: str,
    places: tuple[tuple[int, int, int], ...],
    memory: DeviceMemory,
    arguments: Sequence[_Argument],
    reachable: Sequence[_Argument],
    asked: tuple[int, int | None, bool],
    registers: int | None,
    sass: str,
    races: bool,
    seed: int,
    most_seconds: float,
) -> Emulation:
    for name, size in (("shared", asked[0]), ("max_dynamic_shared", asked[1] or 0)):
        if not 0 <= size < 1 << 31:
            raise bad_input(name, str(size), "must be 0 ... 232448 B")
    words = ["python3", "-c", f"tilescope.emulate({kernel})"]
    told = _native.emulate(
        words, ptx, kernel, *places, arguments, reachable, memory.uninitialised, *asked, registers, sass, races,
        seed % (1 << 64), most_seconds,
    )  # fmt: skip
    memory.give_back()
    return Emulation(*told)
