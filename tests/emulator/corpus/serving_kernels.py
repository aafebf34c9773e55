# SPDX-License-Identifier: Apache-2.0
"""Triton kernels of serving and training: experts, weights of four bits, pages, scaled blocks, gradients by atomics."""

import triton
import triton.language as tl


@triton.jit
def grouped_matmul(
    a, b, c, sizes, begins, n, k,
    GROUPS: tl.constexpr, PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Of a mixture of experts: rows of all groups, one behind the other, by a matrix a group."""
    tile = tl.program_id(0)
    first = 0
    for group in range(GROUPS):
        rows = tl.load(sizes + group)
        begin = tl.load(begins + group)
        across = tl.cdiv(n, BLOCK_N)
        tiles = tl.cdiv(rows, BLOCK_M) * across
        while tile >= first and tile < first + tiles:
            row = (tile - first) // across * BLOCK_M + tl.arange(0, BLOCK_M)
            column = (tile - first) % across * BLOCK_N + tl.arange(0, BLOCK_N)
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for at in range(0, k, BLOCK_K):
                inner = at + tl.arange(0, BLOCK_K)
                inside = (row < rows)[:, None] & (inner < k)[None, :]
                left = tl.load(a + (begin + row)[:, None] * k + inner[None, :], mask=inside, other=0.0)
                inside = (inner < k)[:, None] & (column < n)[None, :]
                right = tl.load(b + group * k * n + inner[:, None] * n + column[None, :], mask=inside, other=0.0)
                total += tl.dot(left, right)
            inside = (row < rows)[:, None] & (column < n)[None, :]
            tl.store(c + (begin + row)[:, None] * n + column[None, :], total.to(tl.float16), mask=inside)
            tile += PROGRAMS
        first += tiles


@triton.jit
def persistent_matmul(
    a, b, c, m, n, k, PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    of_a = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BLOCK_M, BLOCK_K])
    of_b = tl.make_tensor_descriptor(b, [k, n], [n, 1], [BLOCK_K, BLOCK_N])
    of_c = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    across = tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BLOCK_M) * across, PROGRAMS, flatten=True):
        row = tile // across * BLOCK_M
        column = tile % across * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(tl.cdiv(k, BLOCK_K)):
            total = tl.dot(of_a.load([row, step * BLOCK_K]), of_b.load([step * BLOCK_K, column]), total)
        of_c.store([row, column], total.to(tl.float16))


@triton.jit
def int4_matmul(x, packed, scales, out, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for at in range(0, k, GROUP):
        inner = at + tl.arange(0, GROUP)
        eight = tl.load(packed + (inner // 8)[:, None] * n + column[None, :])
        weight = ((eight >> (inner % 8 * 4)[:, None]) & 15) - 8
        scale = tl.load(scales + at // GROUP * n + column)
        value = tl.load(x + row[:, None] * k + inner[None, :])
        total += tl.dot(value, weight.to(tl.float16) * scale[None, :])
    tl.store(out + row[:, None] * n + column[None, :], total)


@triton.jit
def scaled_matmul(a, of_a, b, of_b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """fp8 with a scale, a power of two, for every 32 numbers."""
    row, column, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    block = tl.arange(0, K // 32)
    left = tl.load(a + row[:, None] * K + inner[None, :])
    right = tl.load(b + inner[:, None] * N + column[None, :])
    left_scale = tl.load(of_a + row[:, None] * (K // 32) + block[None, :])
    right_scale = tl.load(of_b + column[:, None] * (K // 32) + block[None, :])
    product = tl.dot_scaled(left, left_scale, "e4m3", right, right_scale, "e4m3")
    tl.store(out + row[:, None] * N + column[None, :], product)


@triton.jit
def paged_decode(q, keys, values, table, lengths, out, most_pages, scale, PAGE: tl.constexpr, DIM: tl.constexpr):
    entry = tl.program_id(0)
    dim = tl.arange(0, DIM)
    query = tl.load(q + entry * DIM + dim)
    length = tl.load(lengths + entry)
    largest = -float("inf")
    total = 0.0
    result = tl.zeros((DIM,), tl.float32)
    for step in range(tl.cdiv(length, PAGE)):
        page = tl.load(table + entry * most_pages + step)
        key = tl.arange(0, PAGE)
        inside = step * PAGE + key < length
        place = page * PAGE * DIM + key[:, None] * DIM + dim[None, :]
        score = tl.sum(tl.load(keys + place, mask=inside[:, None], other=0.0) * query[None, :], 1) * scale
        score = tl.where(inside, score, -float("inf"))
        now = tl.maximum(largest, tl.max(score, 0))
        power = tl.exp(score - now)
        value = tl.load(values + place, mask=inside[:, None], other=0.0)
        result = result * tl.exp(largest - now) + tl.sum(power[:, None] * value, 0)
        total = total * tl.exp(largest - now) + tl.sum(power, 0)
        largest = now
    tl.store(out + entry * DIM + dim, result / total)


@triton.jit
def embedding_gradient(gradient, index, weight, DIM: tl.constexpr):
    token = tl.program_id(0)
    dim = tl.arange(0, DIM)
    row = tl.load(index + token)
    tl.atomic_add(weight + row * DIM + dim, tl.load(gradient + token * DIM + dim))


@triton.jit
def argmax(x, greatest, least, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    values = tl.load(x + row * COLUMNS + tl.arange(0, COLUMNS))
    tl.store(greatest + row, tl.argmax(values, 0))
    tl.store(least + row, tl.argmin(values, 0))


@triton.jit
def rearranged(x, order, swapped, turned, taken, N: tl.constexpr, ROWS: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    even, odd = tl.split(tl.reshape(values, (N // 2, 2)))
    tl.store(swapped + at, tl.interleave(odd, even) + tl.flip(values))
    tl.store(turned + at, tl.reshape(tl.trans(tl.reshape(values, (ROWS, N // ROWS))), (N,)))
    tl.store(taken + at, tl.gather(values, tl.load(order + at), 0))


@triton.jit
def descriptor_reductions(x, sums, greatest, least, rows, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, BLOCK], [BLOCK, 1], [BLOCK, BLOCK])
    block = source.load([tl.program_id(0) * BLOCK, 0])
    tl.make_tensor_descriptor(sums, [BLOCK, BLOCK], [BLOCK, 1], [BLOCK, BLOCK]).atomic_add([0, 0], block)
    tl.make_tensor_descriptor(greatest, [BLOCK, BLOCK], [BLOCK, 1], [BLOCK, BLOCK]).atomic_max([0, 0], block)
    tl.make_tensor_descriptor(least, [BLOCK, BLOCK], [BLOCK, 1], [BLOCK, BLOCK]).atomic_min([0, 0], block)
