# SPDX-License-Identifier: Apache-2.0
"""The same as triton_cases.py, of those kernels of triton_kernels.py that multiply matrices, attention among them."""

from __future__ import annotations

import numpy as np
from cases import Case, draw, fp8_values, from_bf16, to_bf16, triton_case, whole, zeros


def matmul_case(a, b, c, exact, sum_type: str, error: float, dtypes=None, block=(64, 64, 32), warps=4) -> Case:
    (m, k), n = a.shape, b.shape[1]
    sizes = {"m": m, "n": n, "k": k, "a_row": k, "a_column": 1, "b_row": n, "b_column": 1, "c_row": n, "c_column": 1}
    tile = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), block, strict=True))
    grid = (-(-m // block[0]), -(-n // block[1]))
    return Case(
        grid, {"a": a, "b": b, "c": c, **sizes}, {"c": exact}, tile | {"SUM": sum_type}, dtypes or {},
        error=error, kernel="matmul", warps=warps,
    )  # fmt: skip


@triton_case
def matmul_fp16(m: int = 100, n: int = 136, k: int = 96) -> Case:
    a, b = draw(m, k, dtype=np.float16), draw(k, n, dtype=np.float16, seed=2)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return matmul_case(a, b, np.zeros((m, n), np.float16), exact, "fp32", 1e-3)


@triton_case
def matmul_fp16_sums() -> Case:
    """Sums in fp16."""
    a, b = draw(64, 64, dtype=np.float16), draw(64, 64, dtype=np.float16, seed=2)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return matmul_case(a, b, np.zeros((64, 64), np.float16), exact, "fp16", 1e-2)


@triton_case
def matmul_bf16() -> Case:
    a, b = to_bf16(draw(128, 64)), to_bf16(draw(64, 128, seed=2))
    exact = from_bf16(a).astype(np.float64) @ from_bf16(b)
    dtypes = {"a": "bf16", "b": "bf16"}
    return matmul_case(a, b, np.zeros((128, 128), np.float32), exact, "fp32", 1e-5, dtypes, (128, 128, 64), 8)


@triton_case
def matmul_tf32() -> Case:
    a, b = draw(64, 64), draw(64, 64, seed=2)
    return matmul_case(a, b, np.zeros((64, 64), np.float32), a.astype(np.float64) @ b, "fp32", 2e-3)


@triton_case
def matmul_int8() -> Case:
    a, b = whole(-128, 128, 64, 128, dtype=np.int8), whole(-128, 128, 128, 64, dtype=np.int8, seed=2)
    exact = a.astype(np.int64) @ b
    return matmul_case(a, b, np.zeros((64, 64), np.int32), exact, "int32", 0, block=(64, 64, 64))


@triton_case
def matmul_fp8(target: int, m: int = 64, n: int = 64, k: int = 128) -> Case:
    """e4m3 where the tensor cores take it, e5m2 else."""
    values = fp8_values(4 if target >= 89 else 5)
    codes = np.flatnonzero((np.abs(values) < 8) & (values != 0)).astype(np.uint8)
    a, b = codes[whole(0, len(codes), m, k)], codes[whole(0, len(codes), k, n, seed=2)]
    exact = values[a].astype(np.float64) @ values[b]
    dtypes = dict.fromkeys(("a", "b"), "fp8e4nv" if target >= 89 else "fp8e5")
    return matmul_case(a, b, np.zeros((m, n), np.float32), exact, "fp32", 2e-3, dtypes, (64, 64, 64))


@triton_case
def matmul_fp64() -> Case:
    a, b = draw(32, 32, dtype=np.float64), draw(32, 32, dtype=np.float64, seed=2)
    return matmul_case(a, b, np.zeros((32, 32)), a @ b, "fp64", 1e-14, block=(32, 32, 16))


def matmul_by(kernel: str, m: int = 128, n: int = 128, k: int = 96) -> Case:
    a, b = draw(m, k, dtype=np.float16), draw(k, n, dtype=np.float16, seed=2)
    c = np.zeros((m, n), np.float16)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    arguments = {"a": a, "b": b, "c": c, "m": m, "n": n, "k": k}
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    return Case((-(-m // 64), -(-n // 64)), arguments, {"c": exact}, tile, error=1e-3, kernel=kernel)


@triton_case
def matmul_by_descriptors() -> Case:
    case = matmul_by("matmul_by_descriptors")
    case.arguments = {name: case.arguments[name] for name in ("a", "b", "c", "k")}
    return case


@triton_case
def matmul_by_device_descriptors() -> Case:
    return matmul_by("matmul_by_device_descriptors")


@triton_case
def split_k_matmul() -> Case:
    a, b = draw(64, 256, dtype=np.float16), draw(256, 64, dtype=np.float16, seed=2)
    arguments = {"a": a, "b": b, "c": np.zeros((64, 64), np.float16), "m": 64, "n": 64, "k": 256}
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return Case((2, 2, 4), arguments, {"c": exact}, {"BLOCK": 32, "SPLIT": 4}, error=3e-3)


def attention_inputs(seqlen: int, width: int, heads: int = 2) -> list[np.ndarray]:
    return [draw(heads, seqlen, width, dtype=np.float16, seed=seed) for seed in range(4)]


def exact_attention(q, k, scale: float, causal: bool) -> tuple[np.ndarray, np.ndarray]:
    scores = scale * q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    lse = largest + np.log(np.exp(scores - largest).sum(-1, keepdims=True))
    return np.exp(scores - lse), lse[..., 0]


def attention_case(causal: bool, seqlen: int, heads: int = 2) -> Case:
    q, k, v, _ = attention_inputs(seqlen, 64, heads)
    weights, lse = exact_attention(q, k, 0.125, causal)
    arguments = {"q": q, "k": k, "v": v, "out": zeros(q), "lse": np.zeros((heads, seqlen), np.float32)}
    arguments |= {"seqlen": seqlen, "scale": 0.125}
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "D": 64, "CAUSAL": causal}
    expected = {"out": weights @ v.astype(np.float64), "lse": lse}
    return Case((-(-seqlen // 64), heads), arguments, expected, constants, error=3e-3, kernel="attention_forward")


@triton_case
def attention_forward() -> Case:
    return attention_case(False, 128)


@triton_case
def attention_causal() -> Case:
    return attention_case(True, 100)


@triton_case
def attention_backward(seqlen: int = 128, heads: int = 2) -> Case:
    q, k, v, dout = attention_inputs(seqlen, 64, heads)
    weights, lse = exact_attention(q, k, 0.125, False)
    wide = [each.astype(np.float64) for each in (q, k, v, dout)]
    slopes = wide[3] @ wide[2].swapaxes(1, 2)
    delta = (slopes * weights).sum(-1)
    slopes = 0.125 * weights * (slopes - delta[..., None])
    expected = {"dq": slopes @ wide[1], "dk": slopes.swapaxes(1, 2) @ wide[0]}
    expected["dv"] = weights.swapaxes(1, 2) @ wide[3]
    arguments = {"q": q, "k": k, "v": v, "dout": dout, "lse": lse.astype(np.float32)}
    arguments |= {"delta": delta.astype(np.float32), "dq": np.zeros(q.shape, np.float32)}
    arguments |= {"dk": zeros(q), "dv": zeros(q), "seqlen": seqlen, "scale": 0.125}
    return Case((seqlen // 64, heads), arguments, expected, {"BLOCK": 64, "D": 64}, error=5e-3)
