# SPDX-License-Identifier: Apache-2.0
"""How the kernels of cuda/ are launched, and what numpy says that they must give."""

from __future__ import annotations

import numpy as np
from cases import Case, cuda_case, draw, from_bf16, to_bf16, whole, zeros


@cuda_case
def matmul_tiled(m: int = 50, n: int = 70, k: int = 40) -> Case:
    a, b = draw(m, k), draw(k, n, seed=2)
    arguments = {"a": a, "b": b, "c": np.zeros((m, n), np.float32), "m": m, "n": n, "k": k}
    return Case((-(-n // 16), -(-m // 16)), arguments, {"c": a.astype(np.float64) @ b}, block=(16, 16), error=1e-5)


@cuda_case
def reduce_shuffle(rows: int = 7, columns: int = 1000) -> Case:
    x = draw(rows, columns)
    arguments = {"x": x, "out": np.zeros(rows, np.float32), "columns": columns}
    return Case((rows,), arguments, {"out": x.astype(np.float64).sum(1)}, block=(256,), error=1e-5)


def transpose_by(rows_of_block: int, rows: int = 70, columns: int = 50) -> Case:
    x = draw(rows, columns)
    arguments = {"x": x, "out": np.zeros((columns, rows), np.float32), "rows": rows, "columns": columns}
    return Case((-(-columns // 32), -(-rows // 32)), arguments, {"out": x.T}, block=(32, rows_of_block), error=0)


@cuda_case
def transpose_through_shared() -> Case:
    return transpose_by(8)


@cuda_case
def transpose_plain() -> Case:
    return transpose_by(32)


@cuda_case
def histogram_atomics(n: int = 5000, blocks: int = 3) -> Case:
    x = whole(0, 256, n, dtype=np.uint8)
    arguments = {"x": x, "counts": np.zeros(256, np.uint32), "n": n}
    return Case((blocks,), arguments, {"counts": np.bincount(x, minlength=256)}, block=(128,), error=0)


@cuda_case
def scan_block() -> Case:
    x = whole(-9, 10, 1000)
    out = np.concatenate([part.cumsum() for part in np.split(x, range(256, 1000, 256))])
    arguments = {"x": x, "out": zeros(x), "n": 1000}
    return Case((4,), arguments, {"out": out}, block=(256,), shared=1024, error=0)


@cuda_case
def stencil(rows: int = 40, columns: int = 50) -> Case:
    x = draw(rows, columns)
    out = np.zeros((rows, columns))
    out[1:-1, 1:-1] = 0.5 * x[1:-1, 1:-1] + 0.125 * (x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1])
    arguments = {"x": x, "out": zeros(x), "rows": rows, "columns": columns}
    return Case((-(-columns // 32), -(-rows // 8)), arguments, {"out": out}, block=(32, 8))


@cuda_case
def wmma_matmul() -> Case:
    a, b = draw(32, 64, dtype=np.float16), draw(48, 64, dtype=np.float16, seed=2)
    arguments = {"a": a, "b": b, "c": np.zeros((32, 48), np.float32), "n": 48, "k": 64}
    return Case((3, 2), arguments, {"c": a.astype(np.float64) @ b.astype(np.float64).T}, block=(32,), error=1e-5)


@cuda_case
def cooperative_sum() -> Case:
    x = draw(3000)
    arguments = {"x": x, "of_block": np.zeros(6, np.float32), "out": np.zeros(1, np.float32), "n": 3000}
    return Case((6,), arguments, {"out": x.astype(np.float64).sum()[None]}, block=(128,), error=1e-5)


@cuda_case
def half2_axpy() -> Case:
    x, y = draw(600, dtype=np.float16), draw(600, dtype=np.float16, seed=2)
    once = (np.float64(np.float16(1.5)) * x.astype(np.float64) + y.astype(np.float64)).astype(np.float16)
    value = np.maximum(once, -x).reshape(-1, 2)
    greater = (value > y.reshape(-1, 2)).all(1, keepdims=True)
    out = np.where(greater, (value - y.reshape(-1, 2)).astype(np.float16), value).ravel()
    arguments = {"x": x, "y": y, "out": zeros(x), "scale": 1.5, "pairs": 300}
    return Case((3,), arguments, {"out": out}, block=(128,), error=0)


@cuda_case
def dot_products_of_bytes() -> Case:
    a, b = whole(-128, 128, 64, 32, dtype=np.int8), whole(-128, 128, 32, dtype=np.int8, seed=2)
    arguments = {"a": a, "b": b, "out": np.zeros(64, np.int32), "words": 8}
    return Case((2,), arguments, {"out": a.astype(np.int64) @ b}, block=(32,), error=0)


@cuda_case
def prints_and_asserts() -> Case:
    x = whole(0, 100, 32)
    return Case((1,), {"x": x, "out": zeros(x)}, {"out": 2 * x}, block=(32,), error=0)


@cuda_case
def calls() -> Case:
    x = draw(60)
    wide = x.astype(np.float64)
    numbers = np.array([0, 1, 1, 2, 3, 5, 8, 13, 21, 34])[np.arange(60) % 10]
    arguments = {"x": x, "out": zeros(x), "numbers": np.zeros(60, np.int32), "n": 60}
    expected = {"out": 1 - 2 * wide + 0.5 * wide**2 + 0.25 * wide**3, "numbers": numbers}
    return Case((2,), arguments, expected, block=(32,))


@cuda_case
def match_and_vote() -> Case:
    keys = whole(0, 5, 90)
    highest = np.zeros(90, np.int64)
    for begin in range(0, 90, 32):
        part = keys[begin : begin + 32]
        highest[begin : begin + 32] = [np.flatnonzero(part == key)[-1] for key in part]
    arguments = {"keys": keys, "counts": np.zeros(5, np.int32), "highest": np.zeros(90, np.int32), "n": 90}
    return Case((3,), arguments, {"counts": np.bincount(keys, minlength=5), "highest": highest}, block=(32,), error=0)


@cuda_case
def bf16_norm() -> Case:
    x = to_bf16(draw(4, 100))
    wide = from_bf16(x)
    out = wide / np.abs(wide).max(1, keepdims=True)
    arguments = {"x": x, "out": zeros(x), "columns": 100}
    return Case((4,), arguments, {"out": out}, dtypes=dict.fromkeys(("x", "out"), "bf16"), block=(32,), error=5e-3)


@cuda_case
def pipelined_copy() -> Case:
    x = draw(2, 3, 128, 4)
    out = x[:, :, ::-1].copy()
    out[..., 0] += 1
    return Case((2,), {"x": x, "out": zeros(x), "tiles": 3}, {"out": out}, block=(128,))


@cuda_case
def wide_integers() -> Case:
    a, b = (whole(0, 1 << 63, 32, dtype=np.uint64, seed=seed) * np.uint64(2) for seed in (1, 2))
    exact = [int(x) * int(y) + (int(y) << 64) + int(x) for x, y in zip(a, b, strict=True)]
    low = np.array([each & (1 << 64) - 1 for each in exact], np.uint64)
    high = np.array([each >> 64 & (1 << 64) - 1 for each in exact], np.uint64)
    arguments = {"a": a, "b": b, "low": zeros(a), "high": zeros(a)}
    return Case((1,), arguments, {"low": low, "high": high}, block=(32,), error=0)


@cuda_case
def barrier_pipeline() -> Case:
    x = whole(0, 1000, 5, 64)
    return Case((1,), {"x": x, "out": zeros(x), "tiles": 5}, {"out": x[:, ::-1]}, block=(128,), error=0)


@cuda_case
def block_sort() -> Case:
    x = whole(-1000, 1000, 2, 512)
    arguments = {"x": x, "sorted": zeros(x), "sums": np.zeros(2, np.int32)}
    return Case((2,), arguments, {"sorted": np.sort(x, 1), "sums": x.sum(1)}, block=(128,), error=0)


@cuda_case
def group_sums() -> Case:
    x = whole(0, 5, 128)
    tiles, warps = x.reshape(-1, 16), x.reshape(-1, 32)
    expected = {
        "sums": np.repeat(x.reshape(-1, 4).sum(1), 4),
        "scans": (tiles.cumsum(1) - tiles).ravel(),
        "same": (warps[:, :, None] == warps[:, None, :]).sum(2).ravel(),
    }
    arguments = {"x": x, **{name: zeros(x) for name in expected}}
    return Case((2,), arguments, expected, block=(64,), error=0)


@cuda_case
def bulk_copies() -> Case:
    x = draw(2, 3, 256)
    return Case((2,), {"x": x, "out": zeros(x), "tiles": 3}, {"out": x[:, :, ::-1] + 1}, block=(256,), error=0)


@cuda_case
def staged_pipeline() -> Case:
    x = draw(5, 128)
    out = (np.arange(1, 6)[:, None] * x[:, ::-1].astype(np.float64)).sum(0)
    return Case((1,), {"x": x, "out": np.zeros(128, np.float32), "tiles": 5}, {"out": out}, block=(128,))


@cuda_case
def chosen_functions() -> Case:
    x, which = draw(64), whole(0, 3, 64)
    wide = x.astype(np.float64)
    by_table = np.choose(which, [wide + 1, wide**2, wide**3])
    arguments = {"x": x, "which": which, "by_table": zeros(x), "by_object": zeros(x)}
    expected = {"by_table": by_table, "by_object": np.where(which > 0, 2 * wide, wide - 3)}
    return Case((1,), arguments, expected, block=(64,))


@cuda_case
def rounded_ways() -> Case:
    x, n = draw(64, dtype=np.float64), whole(1 << 24, 1 << 30, 64)
    nearest, half = x.astype(np.float32), x.astype(np.float32).astype(np.float16)
    down = np.where(nearest > x, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    up = n.astype(np.float32)
    up = np.where(up < n, np.nextafter(up, np.float32(np.inf)), up)
    to_zero = np.where(np.abs(half) > np.abs(x.astype(np.float32)), np.nextafter(half, np.float16(0)), half)
    with np.errstate(over="ignore"):
        of_whole = (n % 100000).astype(np.float16)
    expected = {"down": down, "up": up, "to_zero": to_zero, "of_whole": of_whole}
    arguments = {"x": x, "n": n, **{name: zeros(value) for name, value in expected.items()}}
    return Case((1,), arguments, expected, block=(64,), error=0)
