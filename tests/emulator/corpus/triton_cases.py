# SPDX-License-Identifier: Apache-2.0
"""How the kernels of triton_kernels.py are launched, and what numpy says that they must give."""

from __future__ import annotations

import numpy as np
from cases import Case, draw, from_bf16, to_bf16, triton_case, whole, zeros


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
