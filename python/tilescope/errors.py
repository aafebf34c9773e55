# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, by whose fault it is.

====================  ==================================================================================
CheckFailed           a check found something (exit code 1 of the command line)
BadInput              an argument cannot be; the message names it, its value and what is allowed (2)
MachineLacks          this machine, this build or this environment lacks something; what would help (3)
InternalError         a defect of TileScope (70)
====================  ==================================================================================

Nothing is written where one is raised. All of them can be pickled.
"""

from __future__ import annotations

__all__ = [
    "BadInput",
    "ByteBudgetExceeded",
    "CheckFailed",
    "CountersUnavailable",
    "DeviceError",
    "InternalError",
    "MachineLacks",
    "MissingPackage",
    "OutOfMemory",
    "UnknownName",
]


class _Told(Exception):
    """An exception that is read as its message alone, whatever else it carries."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class BadInput(_Told, ValueError):
    """An argument that no kernel, model or reader could accept."""

    def __init__(self, message: str, field: str = "", value: str = "", allowed: str = "") -> None:
        super().__init__(message, field, value, allowed)
        self.field = field  #: the argument's name; empty where the message is one sentence
        self.value = value  #: as text
        self.allowed = allowed  #: half a sentence: "must divide heads = 8"


class UnknownName(BadInput):
    """A name that stands for nothing: a kernel, a machine, a preset, a metric."""

    def __init__(
        self, message: str, field: str = "", value: str = "", allowed: str = "", nearest: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, field, value, allowed)
        self.nearest = tuple(nearest)  #: what it was probably meant to be, best first
        self.args = (message, field, value, allowed, self.nearest)


class MachineLacks(_Told, RuntimeError):
    """A device, a permission, a program or a package is missing; the message says what would help."""


class MissingPackage(MachineLacks, ImportError):
    """A Python package that this function needs and `import tilescope` does not."""


class CountersUnavailable(MachineLacks):
    """Hardware counters cannot be read."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message, reason)
        #: permission, busy, subscriber, no_device, no_library or virtual
        self.reason = reason


class OutOfMemory(MachineLacks, MemoryError):
    """The problem does not fit the memory that is left."""


class CheckFailed(_Told, AssertionError):
    """A regression, a mismatch, a budget that was exceeded."""


class ByteBudgetExceeded(CheckFailed):
    """More bytes than a test allows."""


class DeviceError(RuntimeError):
    """CUDA failed; the process's context is of no more use."""


class InternalError(RuntimeError):
    """A defect of TileScope: please report it."""


def bad_input(field: str, value: object, allowed: str) -> BadInput:
    """The error for an argument, told as the library tells its own."""
    return BadInput(f"{field} = {value}: {allowed}", field, str(value), allowed)
