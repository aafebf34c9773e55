# SPDX-License-Identifier: Apache-2.0
"""TileScope: how many bytes a tiled attention kernel moves, how many it must move, and why the two differ.

>>> import tilescope as ts
>>> record = ts.closed_form(ts.Problem.preset("llama3-8b"))
>>> frame = record.frame()  # a row for each pass
"""

from __future__ import annotations

from pathlib import Path

try:
    from . import _native
except ImportError as error:
    if "libgomp" not in str(error):
        raise
    raise ImportError(  # no wheel brings it: a process has one, which PyTorch's kernels share
        "tilescope needs GCC's OpenMP library, which is not here; install it: apt-get install libgomp1"
    ) from None
from .arrays import attention, attention_backward, exact_attention
from .counting import Count, count, counted, counters, info, measure, timeline
from .emulation import Emulation, Finding, emulate
from .emulation_memory import tensor
from .emulation_triton import emulate_triton
from .errors import (
    BadInput,
    ByteBudgetExceeded,
    CheckFailed,
    CountersUnavailable,
    DeviceError,
    InternalError,
    MachineLacks,
    MissingPackage,
    OutOfMemory,
    UnknownName,
)
from .model import (
    advise,
    closed_form,
    diff,
    explain,
    kernels,
    machines,
    metrics,
    models,
    presets,
    report,
    schedules,
    simulate,
    simulate_gpus,
    studies,
    study,
)
from .paged import paged_attention
from .problem import Problem
from .program import bench, ceilings, injection_library, profile_command, verify
from .records import Record, load
from .reports import Diff, Figure, Report
from .traces import Timeline

__version__: str = _native.__version__

__all__ = [
    "BadInput",
    "ByteBudgetExceeded",
    "CheckFailed",
    "Count",
    "CountersUnavailable",
    "DeviceError",
    "Diff",
    "Emulation",
    "Figure",
    "Finding",
    "InternalError",
    "MachineLacks",
    "MissingPackage",
    "OutOfMemory",
    "Problem",
    "Record",
    "Report",
    "Timeline",
    "UnknownName",
    "advise",
    "attention",
    "attention_backward",
    "bench",
    "ceilings",
    "closed_form",
    "count",
    "counted",
    "counters",
    "diff",
    "emulate",
    "emulate_triton",
    "exact_attention",
    "explain",
    "get_cmake_dir",
    "get_include_dir",
    "info",
    "injection_library",
    "kernels",
    "load",
    "machines",
    "measure",
    "metrics",
    "models",
    "paged_attention",
    "presets",
    "profile_command",
    "report",
    "schedules",
    "simulate",
    "simulate_gpus",
    "studies",
    "study",
    "tensor",
    "timeline",
    "verify",
]


def get_cmake_dir() -> str:
    """The folder for ``-D tilescope_DIR=``: the CMake package that the wheel carries."""
    return str(Path(__file__).parent / "lib" / "cmake" / "tilescope")


def get_include_dir() -> str:
    """The folder of the C++ headers."""
    return str(Path(__file__).parent / "include" / "tilescope")
