# SPDX-License-Identifier: Apache-2.0
"""Bytes that the CUDA work of this process moves, from hardware counters: PyTorch's, Triton's, CuPy's, JAX's, anybody's.

Nothing is repeated and nothing changes: a function returns what it returns, and an exception goes through.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from . import _native
from .errors import bad_input
from .records import Record

Result = TypeVar("Result")

_counting = threading.Lock()


def _cuda_device(device: Any) -> int:
    if device is not None:
        return int(getattr(device, "index", device) or 0)
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0


class Count:
    """What `count` counted: ``.record``, ``.rows()`` and ``.frame()`` after the block."""

    def __init__(self, metrics: str, l2: str, name: str, device: Any) -> None:
        self._settings = (metrics, l2, device)
        self._name = name
        self._block: Any = None
        self._record: Record | None = None

    def __enter__(self) -> Count:
        metrics, l2, device = self._settings
        if not _counting.acquire(blocking=False):
            raise bad_input("count", repr(self._name), "must not stand inside another block that counts")
        try:
            self._block = _native.BlockCount(metrics, _cuda_device(device), l2)
            self._block.open()
        except BaseException:
            self._block = None
            _counting.release()
            raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        block, self._block = self._block, None
        try:
            if kind is None:
                block.close(self._name)
                argv = ["python3", "-c", f"with tilescope.count({self._settings[0]!r}): ...".replace("'", '"')]
                self._record = Record(block.record(argv), source="count")
        finally:
            del block  # gives the counters back, whatever happened
            _counting.release()

    @property
    def record(self) -> Record:
        """The record, of schema tilescope.kernels/1: one row, for the block as a whole."""
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


def count(metrics: str = "traffic", *, l2: str = "cold", name: str = "block", device: Any = None) -> Count:
    """Counts what a device does inside a ``with`` block, whoever launches it, on whatever thread and stream.

    metrics : what one pass can count; ``tilescope.counters()`` lists sets and metrics
    l2 : ``cold``: emptied first, and what the block leaves dirty there is counted as written; ``warm``: as it is
    device : an index or a torch.device; default: torch's current one, else 0

    >>> with tilescope.count() as c:        # doctest: +SKIP
    ...     loss.backward()
    >>> c.frame()                           # doctest: +SKIP

    Raises CountersUnavailable without permission or while another profiler holds the counters, MachineLacks without a
    device. Other work of the same context counts too.
    """
    return Count(metrics, l2, name, device)


def counted(
    function: Callable[..., Any] | None = None, *, metrics: str = "traffic", l2: str = "cold", device: Any = None
) -> Any:
    """Decorator: counts every call. The function returns what it returns; ``.counts`` is a list of `Count`.

    ``@counted`` or ``@counted(metrics="traffic", l2="warm")``.
    """

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        counts: list[Count] = []

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Result:
            with count(metrics, l2=l2, name=function.__name__, device=device) as block:
                result = function(*arguments, **options)
            counts.append(block)
            return result

        call.counts = counts  # type: ignore[attr-defined]
        return call

    return decorate if function is None else decorate(function)


def measure(
    function: Callable[..., Any],
    *arguments: Any,
    metrics: str = "traffic",
    launches: int = 9,
    l2: str = "cold",
    **options: Any,
) -> Record:
    """Calls a function, which must do the same each time, again and again: counters of any number of passes, taken
    `launches` times (medians), and its time with a cold or a warm L2, as often as its noise asks for.

    Raises as `count`.
    """
    if launches < 1:
        raise bad_input("launches", launches, "must be at least 1")
    name = getattr(function, "__name__", "function")
    argv = ["python3", "-c", f"tilescope.measure({name})"]
    with _counting:
        text = _native.measure(argv, name, metrics, l2, launches, lambda: function(*arguments, **options))
    return Record(text, source=f"measure({name})")
