# SPDX-License-Identifier: Apache-2.0
"""Triton kernels as people write them; triton_cases.py and matmul_cases.py say how each is launched and what it must give."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + at, powers / tl.sum(powers, axis=0), mask=at < columns)


@triton.jit
def layer_norm(x, weight, bias, out, mean, rstd, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    middle = tl.sum(total, axis=0) / columns
    squares = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        value = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        squares += tl.where(at < columns, (value - middle) * (value - middle), 0.0)
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + eps)
    tl.store(mean + row, middle)
    tl.store(rstd + row, scale)
    for begin in range(0, columns, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        inside = at < columns
        value = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight + at, mask=inside)
        b = tl.load(bias + at, mask=inside)
        tl.store(out + row * columns + at, (value - middle) * scale * w + b, mask=inside)


@triton.jit
def rms_norm(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / columns + eps)
    w = tl.load(weight + at, mask=inside).to(tl.float32)
    tl.store(out + row * columns + at, (value * scale * w).to(tl.bfloat16), mask=inside)


@triton.jit
def matmul(
    a, b, c, m, n, k, a_row, a_column, b_row, b_column, c_row, c_column,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    total = tl.zeros([BLOCK_M, BLOCK_N], SUM)
    for begin in range(0, k, BLOCK_K):
        left = tl.load(
            a + rows[:, None] * a_row + (begin + depth)[None, :] * a_column,
            mask=(rows[:, None] < m) & (begin + depth < k)[None, :], other=0.0,
        )  # fmt: skip
        right = tl.load(
            b + (begin + depth)[:, None] * b_row + columns[None, :] * b_column,
            mask=(begin + depth < k)[:, None] & (columns[None, :] < n), other=0.0,
        )  # fmt: skip
        total = tl.dot(left, right, total, out_dtype=SUM)
    tl.store(
        c + rows[:, None] * c_row + columns[None, :] * c_column, total.to(c.dtype.element_ty),
        mask=(rows[:, None] < m) & (columns[None, :] < n),
    )  # fmt: skip


@triton.jit
def matmul_by_descriptors(a, b, c, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """The descriptors are the host's."""
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for begin in range(0, k, BLOCK_K):
        total = tl.dot(a.load([row, begin]), b.load([begin, column]), total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def matmul_by_device_descriptors(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    right = tl.make_tensor_descriptor(b, [k, n], [n, 1], [BLOCK_K, BLOCK_N])
    result = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for begin in range(0, k, BLOCK_K):
        total = tl.dot(left.load([row, begin]), right.load([begin, column]), total)
    result.store([row, column], total.to(tl.float16))


@triton.jit
def split_k_matmul(a, b, c, m, n, k, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for begin in range(tl.program_id(2) * BLOCK, k, BLOCK * SPLIT):
        depth = begin + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * k + depth[None, :], mask=depth[None, :] < k, other=0.0)
        right = tl.load(b + depth[:, None] * n + columns[None, :], mask=depth[:, None] < k, other=0.0)
        total = tl.dot(left, right, total)
    tl.atomic_add(c + rows[:, None] * n + columns[None, :], total.to(tl.float16), sem="relaxed")


@triton.jit
def attention_forward(
    q, k, v, out, lse, seqlen, scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1) * seqlen * D
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    width = tl.arange(0, D)
    queries = tl.load(q + head + rows[:, None] * D + width[None, :], mask=rows[:, None] < seqlen, other=0.0)
    largest = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    sums = tl.zeros([BLOCK_M, D], tl.float32)
    end = tl.minimum((tl.program_id(0) + 1) * BLOCK_M, seqlen) if CAUSAL else seqlen
    for begin in range(0, end, BLOCK_N):
        columns = begin + tl.arange(0, BLOCK_N)
        keys = tl.load(k + head + columns[None, :] * D + width[:, None], mask=columns[None, :] < seqlen, other=0.0)
        scores = tl.dot(queries, keys) * (scale * 1.44269504)
        visible = columns[None, :] < seqlen
        if CAUSAL:
            visible = visible & (columns[None, :] <= rows[:, None])
        scores = tl.where(visible, scores, -float("inf"))
        newest = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - newest[:, None])
        shrink = tl.exp2(largest - newest)
        total = total * shrink + tl.sum(weights, axis=1)
        values = tl.load(v + head + columns[:, None] * D + width[None, :], mask=columns[:, None] < seqlen, other=0.0)
        sums = tl.dot(weights.to(values.dtype), values, sums * shrink[:, None])
        largest = newest
    result = sums / total[:, None]
    tl.store(out + head + rows[:, None] * D + width[None, :], result.to(tl.float16), mask=rows[:, None] < seqlen)
    tl.store(lse + tl.program_id(1) * seqlen + rows, (largest + tl.log2(total)) * 0.69314718, mask=rows < seqlen)


@triton.jit
def attention_backward(
    q, k, v, dout, lse, delta, dq, dk, dv, seqlen, scale, BLOCK: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    head = tl.program_id(1) * seqlen * D
    line = tl.program_id(1) * seqlen
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    width = tl.arange(0, D)
    there = columns[:, None] * D + width[None, :]
    keys = tl.load(k + head + there)
    values = tl.load(v + head + there)
    key_sums = tl.zeros([BLOCK, D], tl.float32)
    value_sums = tl.zeros([BLOCK, D], tl.float32)
    for begin in range(0, seqlen, BLOCK):
        rows = begin + tl.arange(0, BLOCK)
        here = rows[:, None] * D + width[None, :]
        queries = tl.load(q + head + here)
        gradients = tl.load(dout + head + here)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        weights = tl.exp(scores - tl.load(lse + line + rows)[:, None])
        value_sums += tl.dot(tl.trans(weights).to(tl.float16), gradients)
        slopes = tl.dot(gradients, tl.trans(values)) - tl.load(delta + line + rows)[:, None]
        slopes = (weights * slopes * scale).to(tl.float16)
        key_sums += tl.dot(tl.trans(slopes), queries)
        tl.atomic_add(dq + head + here, tl.dot(slopes, keys))
    tl.store(dk + head + there, key_sums.to(tl.float16))
    tl.store(dv + head + there, value_sums.to(tl.float16))


@triton.jit
def gather(table, index, out, width, BLOCK: tl.constexpr):
    row = tl.load(index + tl.program_id(0))
    for begin in range(0, width, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        inside = at < width
        tl.store(out + tl.program_id(0) * width + at, tl.load(table + row * width + at, mask=inside), mask=inside)


@triton.jit
def row_statistics(x, largest, where, total, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(largest + row, tl.max(values, axis=0))
    tl.store(where + row, tl.argmax(values, axis=0))
    tl.store(total + row, tl.sum(tl.where(at < columns, values, 0.0).to(tl.float64), axis=0))


@triton.jit
def _join(mean_a, squares_a, count_a, mean_b, squares_b, count_b):
    count = count_a + count_b
    share = tl.where(count == 0.0, 0.0, count_b / count)
    apart = mean_b - mean_a
    return mean_a + apart * share, squares_a + squares_b + apart * apart * count_a * share, count


@triton.jit
def welford(x, mean, variance, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0.0)
    middle, squares, count = tl.reduce((values, values * 0, tl.where(inside, 1.0, 0.0)), 0, _join)
    tl.store(mean + row, middle)
    tl.store(variance + row, squares / count)


@triton.jit
def cumulative_sum(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0)
    tl.store(out + row * columns + at, tl.cumsum(values, axis=0), mask=at < columns)


@triton.jit
def _after(slope_a, offset_a, slope_b, offset_b):
    return slope_a * slope_b, slope_b * offset_a + offset_b


@triton.jit
def linear_recurrence(slope, offset, out, length, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = row * length + tl.arange(0, BLOCK)
    _, result = tl.associative_scan((tl.load(slope + at), tl.load(offset + at)), 0, _after)
    tl.store(out + at, result)


@triton.jit
def atomics(keys, counts, largest, least, bits, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    key = tl.load(keys + at, mask=inside, other=0)
    tl.atomic_add(counts + key % BINS, 1, mask=inside)
    tl.atomic_max(largest + key % BINS, key.to(tl.float32), mask=inside)
    tl.atomic_min(least + key % BINS, key, mask=inside)
    tl.atomic_or(bits + key % BINS, 1 << (key % 31), mask=inside)


@triton.jit
def locked_sum(x, lock, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + at, tl.load(out + at) + values)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def rotary(x, cosine, sine, out, seqlen, heads, HALF: tl.constexpr):
    place = tl.program_id(0)
    head = tl.program_id(1)
    at = tl.arange(0, HALF)
    begin = (place * heads + head) * 2 * HALF
    low = tl.load(x + begin + at).to(tl.float32)
    high = tl.load(x + begin + HALF + at).to(tl.float32)
    c = tl.load(cosine + (place % seqlen) * HALF + at)
    s = tl.load(sine + (place % seqlen) * HALF + at)
    tl.store(out + begin + at, (low * c - high * s).to(tl.bfloat16))
    tl.store(out + begin + HALF + at, (high * c + low * s).to(tl.bfloat16))


@triton.jit
def cross_entropy(logits, labels, losses, gradients, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(labels + row)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(logits + row * columns + at, mask=inside, other=-float("inf")).to(tl.float32)
    largest = tl.max(values, axis=0)
    log_sum = largest + tl.log(tl.sum(tl.exp(values - largest), axis=0))
    tl.store(losses + row, log_sum - tl.load(logits + row * columns + label).to(tl.float32))
    slopes = tl.exp(values - log_sum) - tl.where(at == label, 1.0, 0.0)
    tl.store(gradients + row * columns + at, slopes.to(tl.float16), mask=inside)


@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    keep = tl.rand(seed, at) > p
    values = tl.load(x + at, mask=inside)
    tl.store(out + at, tl.where(keep, values / (1 - p), 0.0), mask=inside)


@triton.jit
def histogram(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + at, mask=at < n, other=0), BINS, mask=at < n)
    tl.atomic_add(out + tl.arange(0, BINS), counts)


@triton.jit
def sort(x, out, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def top_k(x, out, COLUMNS: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    best = tl.topk(tl.load(x + row * COLUMNS + tl.arange(0, COLUMNS)), K)
    tl.store(out + row * K + tl.arange(0, K), best)


@triton.jit
def transpose(x, out, rows, columns, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (r[:, None] < rows) & (c[None, :] < columns)
    tile = tl.load(x + r[:, None] * columns + c[None, :], mask=inside)
    tl.store(out + c[:, None] * rows + r[None, :], tl.trans(tile), mask=tl.trans(inside))


@triton.jit
def convolution(x, weight, out, length, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    channel = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for tap in tl.static_range(TAPS):
        place = at + tap - (TAPS - 1)
        value = tl.load(x + channel * length + place, mask=(place >= 0) & (place < length), other=0.0)
        total += value * tl.load(weight + channel * TAPS + tap)
    tl.store(out + channel * length + at, total, mask=at < length)


@triton.jit
def activations(x, gate, swiglu, gelu, tanh, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside).to(tl.float32)
    other = tl.load(gate + at, mask=inside).to(tl.float32)
    tl.store(swiglu + at, (other * tl.sigmoid(other) * value).to(tl.bfloat16), mask=inside)
    tl.store(gelu + at, (0.5 * value * (1 + tl.erf(value * 0.70710678))).to(tl.bfloat16), mask=inside)
    tl.store(tanh + at, libdevice.tanh(value).to(tl.bfloat16), mask=inside)


@triton.jit
def quantise(x, out, scales, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-6) / 127
    tl.store(scales + row, scale)
    tl.store(out + row * columns + at, libdevice.rint(values / scale).to(tl.int8), mask=inside)


@triton.jit
def bf16_chain(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(x + at, mask=inside)
    b = tl.load(y + at, mask=inside)
    tl.store(out + at, tl.where(a > b, a * b, tl.maximum(a, b) - a), mask=inside)


@triton.jit
def checked_sqrt(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.device_assert(value >= 0, "a root of a negative number")
    tl.device_print("value", value)
    tl.store(out + at, tl.sqrt(value), mask=at < n)
