# SPDX-License-Identifier: Apache-2.0
"""How the kernels of serving_kernels.py are launched, and what numpy says that they must give."""

from __future__ import annotations

import numpy as np
from cases import Case, cuda_case, draw, fp8_values, triton_case, whole, zeros


@triton_case
def grouped_matmul() -> Case:
    sizes, n, k = np.array([30, 70, 5], np.int32), 96, 80
    begins = np.cumsum(sizes, dtype=np.int32) - sizes
    a, b = draw(sizes.sum(), k, dtype=np.float16), draw(len(sizes), k, n, dtype=np.float16, seed=2)
    groups = zip(np.split(a.astype(np.float64), begins[1:]), b.astype(np.float64), strict=True)
    exact = np.concatenate([rows @ matrix for rows, matrix in groups])
    arguments = {"a": a, "b": b, "c": np.zeros(exact.shape, np.float16), "sizes": sizes, "begins": begins}
    constants = {"GROUPS": 3, "PROGRAMS": 4, "BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}
    return Case((4,), arguments | {"n": n, "k": k}, {"c": exact}, constants, error=1e-3)


@triton_case
def persistent_matmul() -> Case:
    a, b = draw(200, 96, dtype=np.float16), draw(96, 136, dtype=np.float16, seed=2)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    arguments = {"a": a, "b": b, "c": np.zeros(exact.shape, np.float16), "m": 200, "n": 136, "k": 96}
    constants = {"PROGRAMS": 3, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    return Case((3,), arguments, {"c": exact}, constants, error=1e-3)


@triton_case
def int4_matmul() -> Case:
    m, n, k, group = 32, 64, 128, 32
    x, scales = draw(m, k, dtype=np.float16), np.abs(draw(k // group, n, dtype=np.float16, seed=2))
    weights = whole(0, 16, k, n, dtype=np.uint32)
    places = np.arange(8, dtype=np.uint32)[None, :, None] * np.uint32(4)
    packed = (weights.reshape(-1, 8, n) << places).sum(1, dtype=np.uint32).view(np.int32)
    scaled = (weights.astype(np.float16) - np.float16(8)) * scales.repeat(group, 0)
    exact = x.astype(np.float64) @ scaled.astype(np.float64)
    arguments = {"x": x, "packed": packed, "scales": scales, "out": np.zeros((m, n), np.float32), "n": n, "k": k}
    return Case((1, 1), arguments, {"out": exact}, {"BLOCK_M": m, "BLOCK_N": n, "GROUP": group}, error=1e-5)


@triton_case
def scaled_matmul() -> Case:
    m = n = k = 64
    a, b = whole(0, 96, m, k, dtype=np.uint8), whole(0, 96, k, n, dtype=np.uint8, seed=2)
    of_a, of_b = whole(120, 130, m, k // 32, dtype=np.uint8), whole(120, 130, n, k // 32, dtype=np.uint8, seed=2)
    left = fp8_values(4)[a] * np.exp2(of_a.astype(np.float64) - 127).repeat(32, 1)
    right = fp8_values(4)[b] * np.exp2(of_b.astype(np.float64) - 127).repeat(32, 1).T
    arguments = {"a": a, "of_a": of_a, "b": b, "of_b": of_b, "out": np.zeros((m, n), np.float32)}
    dtypes = {"a": "fp8e4m3", "b": "fp8e4m3"}
    return Case((1,), arguments, {"out": left @ right}, {"M": m, "N": n, "K": k}, dtypes, error=1e-2)


@triton_case
def paged_decode() -> Case:
    lengths, table = np.array([5, 40, 33], np.int32), np.random.default_rng(1).permutation(9).astype(np.int32)
    keys, values, q = draw(9, 16, 64), draw(9, 16, 64, seed=2), draw(3, 64, seed=3)
    out = np.zeros((3, 64))
    for entry, (length, pages) in enumerate(zip(lengths, table.reshape(3, 3), strict=True)):
        powers = np.exp(keys[pages].reshape(-1, 64)[:length].astype(np.float64) @ q[entry] * 0.125)
        out[entry] = powers / powers.sum() @ values[pages].reshape(-1, 64)[:length]
    arguments = {"q": q, "keys": keys, "values": values, "table": table, "lengths": lengths, "out": zeros(q)}
    arguments |= {"most_pages": 3, "scale": 0.125}
    return Case((3,), arguments, {"out": out}, {"PAGE": 16, "DIM": 64}, error=1e-5)


@triton_case
def embedding_gradient() -> Case:
    gradient, index = whole(-9, 9, 50, 64).astype(np.float32), whole(0, 10, 50, seed=2)
    weight = np.zeros((10, 64), np.float32)
    np.add.at(weight, index, gradient)
    arguments = {"gradient": gradient, "index": index, "weight": zeros(weight)}
    return Case((50,), arguments, {"weight": weight}, {"DIM": 64}, error=0)


@triton_case
def argmax() -> Case:
    x = draw(7, 512)
    expected = {"greatest": x.argmax(1), "least": x.argmin(1)}
    arguments = {"x": x} | {name: np.zeros(7, np.int32) for name in expected}
    return Case((7,), arguments, expected, {"COLUMNS": 512}, error=0)


@triton_case
def rearranged() -> Case:
    x, order = draw(256), np.random.default_rng(1).permutation(256).astype(np.int32)
    swapped = x.reshape(-1, 2)[:, ::-1].ravel() + x[::-1]
    expected = {"swapped": swapped, "turned": x.reshape(16, 16).T.ravel(), "taken": x[order]}
    arguments = {"x": x, "order": order} | {name: zeros(x) for name in expected}
    return Case((1,), arguments, expected, {"N": 256, "ROWS": 16}, error=0)


@triton_case
def descriptor_reductions() -> Case:
    x = whole(-9, 9, 96, 32)
    blocks = x.reshape(3, 32, 32)
    expected = {"sums": blocks.sum(0), "greatest": np.maximum(blocks.max(0), 0), "least": np.minimum(blocks.min(0), 0)}
    arguments = {"x": x} | {name: np.zeros((32, 32), np.int32) for name in expected}
    return Case((3,), arguments | {"rows": 96}, expected, {"BLOCK": 32}, error=0)


# ---- CUDA.


@cuda_case
def cluster_exchange() -> Case:
    x = whole(0, 100, 2, 128)
    expected = {"swapped": x[::-1], "sums": x.sum(1)[::-1]}
    arguments = {"x": x} | {name: np.zeros(of.shape, np.int32) for name, of in expected.items()}
    return Case((2,), arguments, expected, block=(128,), error=0)


@cuda_case
def cluster_histogram() -> Case:
    x = whole(0, 128, 8 * 64)
    arguments = {"x": x, "counts": np.zeros(128, np.int32)}
    return Case((8,), arguments, {"counts": np.bincount(x, minlength=128)}, block=(64,), error=0)


@cuda_case
def cluster_softmax() -> Case:
    x = draw(3, 64)
    powers = np.exp(x - x.max(1, keepdims=True))
    expected = {"out": powers / powers.sum(1, keepdims=True)}
    return Case((6,), {"x": x, "out": zeros(x)}, expected, block=(32,))


@cuda_case
def lists_of_malloc() -> Case:
    x = whole(0, 100, 64, 7)
    arguments = {"x": x, "sums": np.zeros(64, np.int32), "each": 7}
    return Case((2,), arguments, {"sums": np.where(x % 2 == 1, x, 0).sum(1)}, block=(32,), error=0)
