# SPDX-License-Identifier: Apache-2.0
"""Bytes that the CUDA work of this process moves, from hardware counters: PyTorch's, Triton's, CuPy's, JAX's, anybody's.

`count` and `counted` repeat nothing and change nothing: a function returns what it returns, and an exception goes through.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import json
import operator
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from . import _native
from .errors import CountersUnavailable, MachineLacks, bad_input
from .problem import Problem
from .records import Record
from .tables import catalogue, frame_of
from .traces import Timeline

if TYPE_CHECKING:
    import pandas

Result = TypeVar("Result")

_LONG_S = 1.0  # a block whose DRAM bytes are no longer its own alone
_counting = threading.Lock()


def _start_anew() -> None:
    """In a forked child nothing counts: CUDA does not work there."""
    global _counting
    _counting = threading.Lock()


os.register_at_fork(after_in_child=_start_anew)


def cupti_of_this_python() -> str | None:
    """The libcupti of the package nvidia-cuda-cupti where this interpreter has it."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found else ():
        for library in ("cu13/lib/libcupti.so.13", "cuda_cupti/lib/libcupti.so.12"):
            if (path := Path(folder) / library).exists():
                return str(path)
    return None


@functools.cache
def _find_cupti() -> None:
    """Loads the libcupti of this interpreter's packages, which is torch's, unless another is named; the native code takes
    what is loaded, and looks in the toolkit where nothing is."""
    path = cupti_of_this_python()
    if path and "TILESCOPE_CUPTI" not in os.environ:
        with contextlib.suppress(OSError):
            ctypes.CDLL(path)


def _cuda_device(device: Any) -> int:
    """The index of 1, "cuda:1", torch.device("cuda", 1); without one, torch's current device."""
    if hasattr(device, "__index__"):
        return operator.index(device)
    if device is not None:
        kind, _, index = str(device).partition(":")
        if kind != "cuda" or not (index.isdigit() or not index):
            raise bad_input("device", str(device), 'must be an index, or as in "cuda:1"')
        if index:
            return int(index)
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0


@contextlib.contextmanager
def _alone(who: str) -> Iterator[None]:
    """Holds the counters of this process; nobody waits for them."""
    if "TILESCOPE_PROFILE" in os.environ and "CUDA_INJECTION64_PATH" in os.environ:
        raise CountersUnavailable("`tilescope profile` counts this process already; run it without", "busy")
    if not _counting.acquire(blocking=False):
        raise bad_input(who, "a block", "must not stand inside another that counts, or beside one on another thread")
    lock = _counting
    try:
        yield
    finally:
        lock.release()


class Count:
    """What `count` counted: ``.record``, ``.rows()`` and ``.frame()`` after the block."""

    def __init__(self, metrics: str, by: str, l2: str, filter: str, name: str, device: Any) -> None:
        if by not in ("block", "kernel"):
            raise bad_input("by", repr(by), "must be block or kernel")
        if filter and by == "block":
            raise bad_input("filter", repr(filter), 'must stand with by="kernel": a block is counted as a whole')
        self._settings = (metrics, by, l2, filter, device)
        self._name = name
        self._block: Any = None
        self._captured: Any = None
        self._held: Any = None
        self._process = 0
        self._record: Record | None = None

    def __enter__(self) -> Count:
        metrics, by, l2, filter, device = self._settings
        _find_cupti()
        with contextlib.ExitStack() as held:
            held.enter_context(_alone("count"))
            self._block = _native.BlockCount(metrics, _cuda_device(device), l2, by, filter)
            held.callback(self._give_back)
            if by == "kernel" and "torch" in sys.modules:
                from .captured import Captured

                self._captured = held.enter_context(Captured())
            self._block.open()
            self._held = held.pop_all()
        self._process = os.getpid()
        self._began = time.monotonic()
        return self

    def _give_back(self) -> None:
        self._block = None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if os.getpid() != self._process:  # a forked child leaves the block too; the counters are its parent's
            _of_parents.append(self._block)
            return
        with self._held:
            if kind is None:
                elapsed_s = time.monotonic() - self._began
                self._block.close(self._name)
                argv = ["python3", "-c", f"with tilescope.count({self._settings[0]!r}): ...".replace("'", '"')]
                self._record = Record(self._block.record(argv), source="count")
                if self._settings[1] == "block" and elapsed_s > _LONG_S:
                    warnings.warn(
                        f"tilescope.count: the block took {elapsed_s:.1f} s; DRAM counters see the whole device, which is "
                        "never quite idle. Import, and call once, before the block",
                        stacklevel=2,
                    )
        for message in self._record.json.get("messages", ()) if self._record else ():
            warnings.warn(f"tilescope.count: {message}", stacklevel=2)

    def explain(self, problem: Problem | None = None, **options: Any) -> Record:
        """What the counted kernels must move, moved, and why, by the problem that they computed, without one that of the
        block's calls of torch's scaled_dot_product_attention: `tilescope.explain` of ``.record``, with its options. Of
        kernels counted by="kernel"."""
        if self._settings[1] == "block":
            raise bad_input("by", repr("block"), 'must be "kernel": a block is counted as a whole')
        if problem is None:
            if self._captured is None:
                raise bad_input("problem", "None", "must be given: torch was not imported when the block began")
            problem = self._captured.problem
        from .model import explain

        return explain(self.record, problem, **options)

    @property
    def record(self) -> Record:
        """The record, of schema tilescope.kernels/1: a row for the block as a whole, or for each kernel."""
        if self._record is None:
            raise bad_input(
                "record", repr(self._name), "must be asked for after the block has ended without an exception"
            )
        return self._record

    def rows(self) -> list[dict[str, Any]]:
        """As of `Record`: measured.sm_l2_read_bytes, measured.dram_read_bytes, ..."""
        return self.record.rows()

    def frame(self) -> Any:
        """The rows as a pandas.DataFrame."""
        return self.record.frame()

    def __repr__(self) -> str:
        return f"<Count {self._name}: {'not ended' if self._record is None else repr(self._record)}>"

    def __str__(self) -> str:
        return str(self.record)

    def _repr_html_(self) -> str:
        return self.record._repr_html_()


_of_parents: list[Any] = []  # never ended: their handles mean nothing in a child


def count(
    metrics: str = "traffic",
    *,
    by: str = "block",
    l2: str = "cold",
    filter: str = "",
    name: str = "block",
    device: Any = None,
) -> Count:
    """Counts what a device does inside a ``with`` block, whoever launches it, on whatever thread and stream.

    metrics : ``tilescope.counters()`` lists sets and metrics; of a block, what one pass can count
    by : ``block``: all together, works round graphs, collectives and beside other profilers; ``kernel``: a row for each
        kernel, launched one after the other, and for each CUDA graph as a whole. Metrics that take several passes are
        replayed by CUPTI. Refused where somebody else has subscribed to CUPTI's callbacks, as torch.profiler may have
    l2 : ``cold``: emptied first, and what the block (the kernel) leaves dirty there is counted as written; ``warm``: as it is
    filter : a regular expression that the names of the kernels contain a match of
    device : an index or a torch.device; default: torch's current one, else 0

    >>> with tilescope.count() as c:        # doctest: +SKIP
    ...     loss.backward()
    >>> c.frame()                           # doctest: +SKIP

    Raises CountersUnavailable without permission or while another profiler holds the counters, MachineLacks without a
    device. Other work of the same context counts too.
    """
    return Count(metrics, by, l2, filter, name, device)


def counted(
    function: Callable[..., Any] | None = None,
    *,
    metrics: str = "traffic",
    by: str = "block",
    l2: str = "cold",
    filter: str = "",
    device: Any = None,
) -> Any:
    """Decorator: counts every call. The function returns what it returns; ``.counts`` is a list of `Count`.

    ``@counted`` or ``@counted(metrics="traffic", by="kernel")``; arguments as of `count`. A call raises as `count`.
    """

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        counts: list[Count] = []

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Result:
            name = getattr(function, "__name__", "function")
            with count(metrics, by=by, l2=l2, filter=filter, name=name, device=device) as block:
                result = function(*arguments, **options)
            counts.append(block)
            return result

        call.counts = counts  # type: ignore[attr-defined]
        return call

    return decorate if function is None else decorate(function)


def _on_the_default_stream(function: Callable[[], object]) -> Callable[[], object]:
    """Where torch is, its work goes to the stream whose events are timed."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return function

    def on_the_default_stream() -> None:
        with torch.cuda.stream(torch.cuda.default_stream()):
            function()

    return on_the_default_stream


def measure(
    function: Callable[..., Any],
    *arguments: Any,
    metrics: str = "traffic",
    launches: int = 9,
    l2: str = "cold",
    time: bool = True,
    device: Any = None,
    **options: Any,
) -> Record:
    """Calls a function, which must do the same each time, again and again: counters of any number of passes, taken
    `launches` times (medians), and its time [s] with a cold or a warm L2, as often as its noise asks for.

    metrics, l2, device : as of `count`; any other argument is the function's
    time : False: counters alone, in fewer calls, and the record has neither times nor the launch's facts

    What it enqueues must be ordered after the default stream. Raises BadInput for fewer than one launch, else as `count`;
    not inside torch.profiler, whose records of kernels it would take.
    """
    if launches < 1:
        raise bad_input("launches", launches, "must be at least 1")
    name = getattr(function, "__name__", "function")
    argv = ["python3", "-c", f"tilescope.measure({name})"]
    _find_cupti()
    with _alone("measure"):
        work = _on_the_default_stream(lambda: function(*arguments, **options))
        text = _native.measure(argv, name, metrics, l2, _cuda_device(device), launches, time, work)
    return Record(text, source=f"measure({name})")


def timeline(function: Callable[..., Any], *arguments: Any, interval_us: float = 100, **options: Any) -> Timeline:
    """Calls a function once and samples device 0 meanwhile: DRAM bytes and use, tensor pipes, SMs, against time.

    interval_us : of a sample, 10 ... 1e6. The function waits for its work itself (torch.cuda.synchronize()).
    ``.trace(path)`` writes what Perfetto opens. Counts everybody's work on the device. Raises as `count`.
    """
    if not 10 <= interval_us <= 1e6:
        raise bad_input("interval_us", interval_us, "must lie in 10 ... 1e6")
    _find_cupti()
    with _alone("timeline"):
        return Timeline(json.loads(_native.timeline(interval_us * 1e-6, lambda: function(*arguments, **options))))


def counting_facts() -> dict[str, str | None]:
    """Which libcupti counts, and why nothing can be counted here, where that is so. Makes a context on device 0."""
    _find_cupti()
    try:
        with _alone("info"):
            return {"cupti": _native.BlockCount("traffic", 0, "warm", "block", "").library(), "counters_lack": None}
    except (MachineLacks, ValueError) as lack:
        return {"cupti": None, "counters_lack": str(lack)}


def counters(chip: str | None = None) -> pandas.DataFrame:
    """What can be counted: sets of metrics, metrics with their units, and the hardware counters that each is computed
    from.

    chip : CUPTI's name of one, as in "GH100": its own counters and ``passes``, the times that a kernel must run for them;
        <NA> where the chip has none. It need not be here

    Raises UnknownName for a chip that the libcupti of this machine does not know, MachineLacks without libcupti.
    """
    if chip is None:
        return catalogue("counters")
    _find_cupti()
    table = frame_of(json.loads(_native.counters_of(chip)), "`tilescope.counters()`")
    return table.astype({"passes": "Int64"})


def info() -> dict[str, Any]:
    """What a report of a defect should say: versions, commit, CUDA, device, and what is missing here.

    device_lack : why the gpu: kernels do not run here; counters_lack : why nothing can be counted. None: they do, it can.
    """
    import importlib.metadata
    import platform

    facts: dict[str, Any] = json.loads(_native.info()) | counting_facts() | {"python": platform.python_version()}
    for package in ("numpy", "pandas", "torch", "nvidia-cuda-cupti"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            facts[package] = importlib.metadata.version(package)
    return facts
