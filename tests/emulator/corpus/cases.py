# SPDX-License-Identifier: Apache-2.0
"""The kernels of the corpus: how each is launched, and what numpy says that it must give. No GPU, Triton or nvcc."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass
class Case:
    """A launch. `arguments` are the kernel's, constants left out; arrays named in `expected` are results."""

    grid: tuple[int, ...]
    arguments: dict[str, Any]
    expected: dict[str, np.ndarray]
    constants: dict[str, Any] = dataclasses.field(default_factory=dict)  # of Triton kernels
    dtypes: dict[str, str] = dataclasses.field(default_factory=dict)  # of arrays that hold what numpy has no type for
    warps: int = 4
    stages: int = 3
    block: tuple[int, ...] = (1, 1, 1)  # of CUDA kernels
    shared: int = 0
    error: float = 1e-6  # of the largest expected number
    kernel: str = ""  # where it is not the case's name


TRITON: dict[str, Callable[[int], Case]] = {}
CUDA: dict[str, Callable[[], Case]] = {}


def triton_case(make: Callable[..., Case]) -> Callable[..., Case]:
    """Called with the compute capability."""
    takes_target = "target" in make.__code__.co_varnames[: make.__code__.co_argcount]
    TRITON[make.__name__] = make if takes_target else lambda target: make()
    return make


def cuda_case(make: Callable[[], Case]) -> Callable[[], Case]:
    CUDA[make.__name__] = make
    return make


def draw(*shape: int, dtype: Any = np.float32, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def whole(least: int, end: int, *shape: int, dtype: Any = np.int32, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(least, end, shape).astype(dtype)


def to_bf16(values: np.ndarray) -> np.ndarray:
    """The upper halves of fp32, rounded to the nearest."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(halves: np.ndarray) -> np.ndarray:
    return (halves.astype(np.uint32) << 16).view(np.float32)


def fp8_values(exponent_bits: int) -> np.ndarray:
    """The 256 numbers of e4m3 (4) or e5m2 (5), NaN and infinities as zeros."""
    codes = np.arange(256)
    fraction_bits = 7 - exponent_bits
    exponent = codes >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = (codes & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    size = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    special = exponent == 31 if exponent_bits == 5 else codes & 0x7F == 0x7F
    return np.where(special, 0, np.where(codes & 0x80, -size, size)).astype(np.float32)


def zeros(like: np.ndarray) -> np.ndarray:
    return np.zeros_like(like)


def wrong_results(case: Case) -> dict[str, Any]:
    """Names of results that are not as expected, and by how much."""
    wrong: dict[str, Any] = {}
    for name, expected in case.expected.items():
        got = case.arguments[name]
        if case.dtypes.get(name) == "bf16":
            got = from_bf16(got)
        if case.error == 0:
            if not np.array_equal(got.astype(expected.dtype), expected) and not np.array_equal(got, expected):
                wrong[name] = "other numbers"
            continue
        distance = np.abs(got.astype(np.float64) - expected).max() / np.abs(expected).max()
        if not distance <= case.error:
            wrong[name] = float(distance)
    return wrong


# These add theirs.
import cuda_cases  # noqa: E402, F401
import matmul_cases  # noqa: E402, F401
import serving_cases  # noqa: E402, F401
import triton_cases  # noqa: E402, F401
