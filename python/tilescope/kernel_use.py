# SPDX-License-Identifier: Apache-2.0
"""Which kernel, and how it cuts its tiles: the arguments `kernel`, `tile` and `backward` that many functions share."""

from __future__ import annotations

import operator
from typing import Any

from . import _native

DEFAULT_KERNEL = "cpu:flash2"  #: of what computes here


def kernel_use(
    kernel: str | None,
    tile: Any = None,
    backward: str | None = None,
    order: str | None = None,
    scan: str | None = None,
    diagonal_slices: int | None = None,
    *,
    default: str = DEFAULT_KERNEL,
) -> _native.KernelUse:
    """What the native functions take; ``default=""`` leaves the kernel to the model. Raises TypeError, which names the
    argument."""
    for name, value in (("kernel", kernel), ("backward", backward), ("order", order), ("scan", scan)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} must be a name, not {value!r}")
    if tile is not None:
        tile = _two_sides(tile)
    if diagonal_slices is not None:
        try:
            diagonal_slices = operator.index(diagonal_slices)
        except TypeError:
            raise TypeError(f"diagonal_slices must be an integer, not {diagonal_slices!r}") from None
    return _native.KernelUse(kernel or default, tile, backward, order, scan, diagonal_slices)


def _two_sides(tile: Any) -> tuple[int, int]:
    try:
        block_m, block_n = map(operator.index, tile)
    except (TypeError, ValueError):
        raise TypeError(f"tile must be (block_m, block_n), two integers, not {tile!r}") from None
    return block_m, block_n
