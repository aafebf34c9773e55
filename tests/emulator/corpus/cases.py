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


# ---- Triton.


@triton_case
def vector_add(n: int = 5000) -> Case:
    x, y = draw(n), draw(n, seed=2)
    arguments = {"x": x, "y": y, "out": zeros(x), "n": n}
    return Case((-(-n // 1024),), arguments, {"out": x + y}, {"BLOCK": 1024}, error=0)


def softmax_of(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@triton_case
def softmax(rows: int = 16, columns: int = 1000, stride: int = 1024) -> Case:
    """Of rows of 1024, the first 1000 columns."""
    x = draw(rows, stride)
    out = np.zeros_like(x)
    out[:, :columns] = softmax_of(x[:, :columns])
    arguments = {"x": x, "out": zeros(x), "stride": stride, "columns": columns}
    return Case((rows,), arguments, {"out": out}, {"BLOCK": 1024})


@triton_case
def layer_norm(rows: int = 6, columns: int = 700) -> Case:
    x, weight, bias = draw(rows, columns, dtype=np.float16), draw(columns, seed=2), draw(columns, seed=3)
    wide = x.astype(np.float64)
    mean, rstd = wide.mean(1), 1 / np.sqrt(wide.var(1) + 1e-5)
    out = ((wide - mean[:, None]) * rstd[:, None] * weight + bias).astype(np.float16)
    one = np.zeros(rows, np.float32)
    arguments = {"x": x, "weight": weight, "bias": bias, "out": zeros(x), "mean": one, "rstd": one.copy()}
    arguments |= {"columns": columns, "eps": 1e-5}
    return Case((rows,), arguments, {"out": out, "mean": mean, "rstd": rstd}, {"BLOCK": 256}, error=1e-3)


@triton_case
def rms_norm() -> Case:
    x, weight = to_bf16(draw(5, 300)), to_bf16(draw(300, seed=2))
    wide = from_bf16(x).astype(np.float64)
    out = wide / np.sqrt((wide**2).mean(1) + 1e-6)[:, None] * from_bf16(weight)
    arguments = {"x": x, "weight": weight, "out": zeros(x), "columns": 300, "eps": 1e-6}
    dtypes = dict.fromkeys(("x", "weight", "out"), "bf16")
    return Case((5,), arguments, {"out": out}, {"BLOCK": 512}, dtypes, error=5e-3)


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


@triton_case
def gather(rows: int = 24, width: int = 200, table_rows: int = 50) -> Case:
    table, index = draw(table_rows, width), whole(0, table_rows, rows, dtype=np.int64)
    arguments = {"table": table, "index": index, "out": np.zeros((rows, width), np.float32), "width": width}
    return Case((rows,), arguments, {"out": table[index]}, {"BLOCK": 128}, error=0)


@triton_case
def row_statistics() -> Case:
    x = draw(8, 333)
    arguments = {"x": x, "largest": np.zeros(8, np.float32), "where": np.zeros(8, np.int32), "total": np.zeros(8)}
    expected = {"largest": x.max(1), "where": x.argmax(1), "total": x.astype(np.float64).sum(1)}
    return Case((8,), arguments | {"columns": 333}, expected, {"BLOCK": 512}, error=1e-12)


@triton_case
def welford() -> Case:
    x = draw(8, 333) + 5
    arguments = {"x": x, "mean": np.zeros(8, np.float32), "variance": np.zeros(8, np.float32), "columns": 333}
    return Case((8,), arguments, {"mean": x.mean(1), "variance": x.var(1)}, {"BLOCK": 512}, error=1e-5)


@triton_case
def cumulative_sum() -> Case:
    x = whole(-100, 100, 4, 500)
    arguments = {"x": x, "out": zeros(x), "columns": 500}
    return Case((4,), arguments, {"out": x.cumsum(1)}, {"BLOCK": 512}, error=0)


@triton_case
def linear_recurrence() -> Case:
    slope, offset = draw(3, 256) / 4, draw(3, 256, seed=2)
    out, state = np.zeros((3, 256)), np.zeros(3)
    for step in range(256):
        state = slope[:, step] * state + offset[:, step]
        out[:, step] = state
    arguments = {"slope": slope, "offset": offset, "out": zeros(slope), "length": 256}
    return Case((3,), arguments, {"out": out}, {"BLOCK": 256}, error=1e-5)


@triton_case
def atomics() -> Case:
    keys = whole(0, 1000, 900)
    bins = keys % 16
    arguments = {"keys": keys, "counts": np.zeros(16, np.int32), "largest": np.zeros(16, np.float32)}
    arguments |= {"least": np.full(16, 10**6, np.int32), "bits": np.zeros(16, np.int32), "n": 900}
    of_bin = [keys[bins == each] for each in range(16)]
    expected = {"counts": np.bincount(bins, minlength=16), "largest": np.array([each.max() for each in of_bin])}
    expected["least"] = np.array([each.min() for each in of_bin])
    expected["bits"] = np.array([np.bitwise_or.reduce(1 << each % 31) for each in of_bin])
    return Case((2,), arguments, expected, {"BINS": 16, "BLOCK": 512}, error=0)


@triton_case
def locked_sum() -> Case:
    x = whole(-50, 50, 6, 128).astype(np.float32)
    arguments = {"x": x, "lock": np.zeros(1, np.int32), "out": np.zeros(128, np.float32)}
    return Case((6,), arguments, {"out": x.sum(0)}, {"BLOCK": 128}, error=0)


@triton_case
def rotary() -> Case:
    x = to_bf16(draw(2 * 10, 4, 64))
    angle = np.outer(np.arange(10), 10000.0 ** (-np.arange(32) / 32))
    cosine, sine = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    low, high = from_bf16(x)[..., :32], from_bf16(x)[..., 32:]
    c, s = np.tile(cosine, (2, 1))[:, None], np.tile(sine, (2, 1))[:, None]
    out = np.concatenate([low * c - high * s, high * c + low * s], -1)
    arguments = {"x": x, "cosine": cosine, "sine": sine, "out": zeros(x), "seqlen": 10, "heads": 4}
    return Case((20, 4), arguments, {"out": out}, {"HALF": 32}, {"x": "bf16", "out": "bf16"}, 1, error=5e-3)


@triton_case
def cross_entropy() -> Case:
    logits, labels = draw(10, 501, dtype=np.float16), whole(0, 501, 10, dtype=np.int64)
    probabilities = softmax_of(logits.astype(np.float64))
    arguments = {"logits": logits, "labels": labels, "losses": np.zeros(10, np.float32), "gradients": zeros(logits)}
    rows = np.arange(10)
    gradients = probabilities.copy()
    gradients[rows, labels] -= 1
    expected = {"losses": -np.log(probabilities[rows, labels]), "gradients": gradients}
    return Case((10,), arguments | {"columns": 501}, expected, {"BLOCK": 512}, error=1e-3)


def philox(seed: int, counters: np.ndarray) -> np.ndarray:
    """The first word of Philox 4x32 with ten rounds (Salmon et al., SC 2011)."""
    words = [counters.astype(np.uint64), *(np.zeros(len(counters), np.uint64) for _ in range(3))]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (second >> np.uint64(32)) ^ words[1] ^ np.uint64(key[0]), second & low,
            (first >> np.uint64(32)) ^ words[3] ^ np.uint64(key[1]), first & low,
        ]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return words[0].astype(np.uint32)


@triton_case
def dropout() -> Case:
    x = draw(1000)
    signed = philox(123, np.arange(1000)).view(np.int32).astype(np.int64)
    uniform = np.where(signed < 0, -signed - 1, signed) * np.float32(4.6566127342e-10)
    out = np.where(uniform > 0.25, x / np.float32(0.75), 0)
    arguments = {"x": x, "out": zeros(x), "n": 1000, "p": 0.25, "seed": 123}
    return Case((2,), arguments, {"out": out}, {"BLOCK": 512}, error=1e-6)


@triton_case
def histogram() -> Case:
    x = whole(0, 32, 1500)
    arguments = {"x": x, "out": np.zeros(32, np.int32), "n": 1500}
    return Case((3,), arguments, {"out": np.bincount(x, minlength=32)}, {"BINS": 32, "BLOCK": 512}, error=0)


@triton_case
def sort() -> Case:
    x = draw(3, 256)
    return Case((3,), {"x": x, "out": zeros(x)}, {"out": np.sort(x, 1)}, {"COLUMNS": 256}, error=0)


@triton_case
def top_k() -> Case:
    x = draw(3, 256)
    best = np.sort(x, 1)[:, :-9:-1]
    return Case((3,), {"x": x, "out": zeros(best)}, {"out": best}, {"COLUMNS": 256, "K": 8}, error=0)


@triton_case
def transpose() -> Case:
    x = draw(100, 70, dtype=np.float16)
    arguments = {"x": x, "out": np.zeros((70, 100), np.float16), "rows": 100, "columns": 70}
    return Case((2, 2), arguments, {"out": x.T}, {"BLOCK": 64}, error=0)


@triton_case
def convolution() -> Case:
    x, weight = draw(3, 600), draw(3, 4, seed=2)
    padded = np.pad(x.astype(np.float64), ((0, 0), (3, 0)))
    out = sum(padded[:, tap : tap + 600] * weight[:, tap : tap + 1] for tap in range(4))
    arguments = {"x": x, "weight": weight, "out": zeros(x), "length": 600}
    return Case((3, 3), arguments, {"out": out}, {"TAPS": 4, "BLOCK": 256})


@triton_case
def activations() -> Case:
    from math import erf

    x, gate = to_bf16(draw(700)), to_bf16(draw(700, seed=2))
    wide, other = from_bf16(x).astype(np.float64), from_bf16(gate).astype(np.float64)
    gelu = 0.5 * wide * (1 + np.array([erf(value * 0.70710678) for value in wide]))
    expected = {"swiglu": other / (1 + np.exp(-other)) * wide, "gelu": gelu, "tanh": np.tanh(wide)}
    arguments = {"x": x, "gate": gate, "swiglu": zeros(x), "gelu": zeros(x), "tanh": zeros(x), "n": 700}
    dtypes = dict.fromkeys(("x", "gate", "swiglu", "gelu", "tanh"), "bf16")
    return Case((2,), arguments, expected, {"BLOCK": 512}, dtypes, error=5e-3)


@triton_case
def quantise() -> Case:
    x = draw(6, 300, dtype=np.float16)
    scales = (np.abs(x.astype(np.float32)).max(1) / np.float32(127)).astype(np.float32)
    out = np.rint(x.astype(np.float32) / scales[:, None])
    arguments = {"x": x, "out": np.zeros(x.shape, np.int8), "scales": np.zeros(6, np.float32), "columns": 300}
    return Case((6,), arguments, {"out": out, "scales": scales}, {"BLOCK": 512}, error=1e-7)


@triton_case
def bf16_chain() -> Case:
    x, y = to_bf16(draw(600)), to_bf16(draw(600, seed=2))
    a, b = from_bf16(x), from_bf16(y)
    out = from_bf16(to_bf16(np.where(a > b, a * b, np.maximum(a, b) - a)))
    arguments = {"x": x, "y": y, "out": zeros(x), "n": 600}
    return Case((2,), arguments, {"out": out}, {"BLOCK": 512}, dict.fromkeys(("x", "y", "out"), "bf16"), error=0)


@triton_case
def checked_sqrt() -> Case:
    x = np.abs(draw(100))
    arguments = {"x": x, "out": zeros(x), "n": 100}
    return Case((1,), arguments, {"out": np.sqrt(x)}, {"BLOCK": 128})


# ---- CUDA.


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


import serving_cases  # noqa: E402, F401  adds its own
