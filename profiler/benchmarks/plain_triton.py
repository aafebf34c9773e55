# SPDX-License-Identifier: Apache-2.0
"""FlashAttention-2 in plain Triton: what the algorithm gives without knowing the chip.

Forward as Algorithm 1 of arXiv:2307.08691, backward in the order `split`: delta, then dK and dV by kv tile, then
dQ by q tile. (B, H, N, D) contiguous, N a multiple of 128, D a power of two up to 128. Either with one tile shape
for every head dimension, or tuned: of a few shapes the fastest, by timing, once for each head dimension and mask.
"""

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
TILE_MULTIPLE = 128


def version():
    return triton.__version__


@triton.jit
def tile_at(tensor, base, first_row, ROWS: tl.constexpr, D: tl.constexpr):
    """Addresses of rows first_row ... of a head, (ROWS, D)."""
    rows = first_row + tl.arange(0, ROWS)
    return tensor + base + rows[:, None] * D + tl.arange(0, D)[None, :]


@triton.jit
def forward_step(q, k, v, base, start, rows, row_max, row_sum, accum, scale_log2, D: tl.constexpr,
                 BLOCK_N: tl.constexpr, MASKED: tl.constexpr):
    keys = tl.load(tile_at(k, base, start, BLOCK_N, D))
    scores = tl.dot(q, tl.trans(keys)) * scale_log2
    if MASKED:
        cols = start + tl.arange(0, BLOCK_N)
        scores = tl.where(rows[:, None] >= cols[None, :], scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    probs = tl.exp2(scores - new_max[:, None])
    rescale = tl.exp2(row_max - new_max)
    row_sum = row_sum * rescale + tl.sum(probs, 1)
    values = tl.load(tile_at(v, base, start, BLOCK_N, D))
    accum = tl.dot(probs.to(values.dtype), values, accum * rescale[:, None])
    return new_max, row_sum, accum


@triton.jit
def forward_kernel(q, k, v, out, lse, seqlen, scale_log2, D: tl.constexpr, CAUSAL: tl.constexpr,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    first = tl.program_id(0) * BLOCK_M
    base = tl.program_id(1).to(tl.int64) * seqlen * D
    rows = first + tl.arange(0, BLOCK_M)
    queries = tl.load(tile_at(q, base, first, BLOCK_M, D))
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    accum = tl.zeros([BLOCK_M, D], tl.float32)
    visible_to_all = first // BLOCK_N * BLOCK_N if CAUSAL else seqlen
    for start in range(0, visible_to_all, BLOCK_N):
        row_max, row_sum, accum = forward_step(queries, k, v, base, start, rows, row_max, row_sum, accum, scale_log2,
                                               D, BLOCK_N, False)
    if CAUSAL:
        for start in range(visible_to_all, first + BLOCK_M, BLOCK_N):
            row_max, row_sum, accum = forward_step(queries, k, v, base, start, rows, row_max, row_sum, accum,
                                                   scale_log2, D, BLOCK_N, True)
    accum = accum / row_sum[:, None]
    tl.store(tile_at(out, base, first, BLOCK_M, D), accum.to(out.dtype.element_ty))
    tl.store(lse + tl.program_id(1).to(tl.int64) * seqlen + rows, row_max + tl.log2(row_sum))


@triton.jit
def delta_kernel(out, dout, delta, D: tl.constexpr, BLOCK_M: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK_M
    products = tl.load(tile_at(out, 0, first, BLOCK_M, D)).to(tl.float32)
    products *= tl.load(tile_at(dout, 0, first, BLOCK_M, D)).to(tl.float32)
    tl.store(delta + first + tl.arange(0, BLOCK_M), tl.sum(products, 1))


@triton.jit
def dkdv_step(q, dout, keys, values, lse, delta, base, base_rows, start, cols, dk, dv, scale_log2, D: tl.constexpr,
              BLOCK_M: tl.constexpr, MASKED: tl.constexpr):
    rows = start + tl.arange(0, BLOCK_M)
    queries = tl.load(tile_at(q, base, start, BLOCK_M, D))
    scores = tl.dot(keys, tl.trans(queries)) * scale_log2
    probs = tl.exp2(scores - tl.load(lse + base_rows + rows)[None, :])
    if MASKED:
        probs = tl.where(rows[None, :] >= cols[:, None], probs, 0.0)
    douts = tl.load(tile_at(dout, base, start, BLOCK_M, D))
    dv = tl.dot(probs.to(douts.dtype), douts, dv)
    dprobs = tl.dot(values, tl.trans(douts))
    dscores = probs * (dprobs - tl.load(delta + base_rows + rows)[None, :])
    dk = tl.dot(dscores.to(queries.dtype), queries, dk)
    return dk, dv


@triton.jit
def dkdv_kernel(q, k, v, dout, lse, delta, dk_out, dv_out, seqlen, scale, scale_log2, D: tl.constexpr,
                CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    first = tl.program_id(0) * BLOCK_N
    base_rows = tl.program_id(1).to(tl.int64) * seqlen
    base = base_rows * D
    cols = first + tl.arange(0, BLOCK_N)
    keys = tl.load(tile_at(k, base, first, BLOCK_N, D))
    values = tl.load(tile_at(v, base, first, BLOCK_N, D))
    dk = tl.zeros([BLOCK_N, D], tl.float32)
    dv = tl.zeros([BLOCK_N, D], tl.float32)
    see_all = 0
    if CAUSAL:
        see_all = first + BLOCK_N
        for start in range(first // BLOCK_M * BLOCK_M, see_all, BLOCK_M):
            dk, dv = dkdv_step(q, dout, keys, values, lse, delta, base, base_rows, start, cols, dk, dv, scale_log2, D,
                               BLOCK_M, True)
    for start in range(see_all, seqlen, BLOCK_M):
        dk, dv = dkdv_step(q, dout, keys, values, lse, delta, base, base_rows, start, cols, dk, dv, scale_log2, D,
                           BLOCK_M, False)
    tl.store(tile_at(dk_out, base, first, BLOCK_N, D), (dk * scale).to(dk_out.dtype.element_ty))
    tl.store(tile_at(dv_out, base, first, BLOCK_N, D), dv.to(dv_out.dtype.element_ty))


@triton.jit
def dq_step(k, v, queries, douts, lse, delta, base, start, rows, dq, scale_log2, D: tl.constexpr,
            BLOCK_N: tl.constexpr, MASKED: tl.constexpr):
    keys = tl.load(tile_at(k, base, start, BLOCK_N, D))
    values = tl.load(tile_at(v, base, start, BLOCK_N, D))
    probs = tl.exp2(tl.dot(queries, tl.trans(keys)) * scale_log2 - lse[:, None])
    if MASKED:
        cols = start + tl.arange(0, BLOCK_N)
        probs = tl.where(rows[:, None] >= cols[None, :], probs, 0.0)
    dscores = probs * (tl.dot(douts, tl.trans(values)) - delta[:, None])
    return tl.dot(dscores.to(keys.dtype), keys, dq)


@triton.jit
def dq_kernel(q, k, v, dout, lse, delta, dq_out, seqlen, scale, scale_log2, D: tl.constexpr, CAUSAL: tl.constexpr,
              BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    first = tl.program_id(0) * BLOCK_M
    base_rows = tl.program_id(1).to(tl.int64) * seqlen
    base = base_rows * D
    rows = first + tl.arange(0, BLOCK_M)
    queries = tl.load(tile_at(q, base, first, BLOCK_M, D))
    douts = tl.load(tile_at(dout, base, first, BLOCK_M, D))
    row_lse = tl.load(lse + base_rows + rows)
    row_delta = tl.load(delta + base_rows + rows)
    dq = tl.zeros([BLOCK_M, D], tl.float32)
    visible_to_all = first // BLOCK_N * BLOCK_N if CAUSAL else seqlen
    for start in range(0, visible_to_all, BLOCK_N):
        dq = dq_step(k, v, queries, douts, row_lse, row_delta, base, start, rows, dq, scale_log2, D, BLOCK_N, False)
    if CAUSAL:
        for start in range(visible_to_all, first + BLOCK_M, BLOCK_N):
            dq = dq_step(k, v, queries, douts, row_lse, row_delta, base, start, rows, dq, scale_log2, D, BLOCK_N, True)
    tl.store(tile_at(dq_out, base, first, BLOCK_M, D), (dq * scale).to(dq_out.dtype.element_ty))


# (BLOCK_M, BLOCK_N, warps, stages) by pass: of the same form as Triton's tutorial on attention has in backward.
UNTUNED = {"forward": (128, 64, 4, 3), "dkdv": (32, 128, 4, 5), "dq": (128, 32, 4, 5)}
# To choose from, by pass and head dimension.
CHOICES = {
    ("forward", 64): [(128, 64, 4, 3), (128, 128, 8, 3)],
    ("forward", 128): [(128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2)],
    ("dkdv", 64): [(64, 128, 8, 2), (64, 64, 4, 2)],
    ("dkdv", 128): [(64, 128, 8, 2), (64, 64, 4, 2)],
    ("dq", 64): [(128, 64, 8, 2), (64, 64, 4, 2)],
    ("dq", 128): [(128, 64, 8, 2), (64, 64, 4, 2)],
}
chosen = {}  # (pass, head dimension, mask) -> choice


def fastest(choices, launch):
    if len(choices) == 1:
        return choices[0]
    times = {}
    for choice in choices:
        try:
            launch(choice)
        except triton.runtime.errors.OutOfResources:
            continue
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(3):
            launch(choice)
        end.record()
        end.synchronize()
        times[choice] = begin.elapsed_time(end)
    return min(times, key=times.get)


class Attention:
    """One problem with its tensors; forward() before backward()."""

    def __init__(self, q, k, v, dout, causal, scale, tuned):
        self.q, self.k, self.v, self.dout, self.causal, self.tuned = q, k, v, dout, causal, tuned
        self.batch, self.heads, self.seqlen, self.head_dim = q.shape
        if ("forward", self.head_dim) not in CHOICES or self.seqlen % TILE_MULTIPLE or q.dtype == torch.float32:
            raise ValueError(f"no tiles for fp32, head_dim {self.head_dim} or seqlen {self.seqlen}")
        self.scale = scale
        self.out, self.dq, self.dk, self.dv = (torch.empty_like(q) for _ in range(4))
        self.lse = torch.empty((self.batch, self.heads, self.seqlen), device=q.device, dtype=torch.float32)
        self.delta = torch.empty_like(self.lse)

    def launch(self, name, kernel, rows_of_grid, *tensors, scales):
        def with_choice(choice):
            block_m, block_n, warps, stages = choice
            grid = (self.seqlen // (block_m if rows_of_grid == "m" else block_n), self.batch * self.heads)
            kernel[grid](*tensors, self.seqlen, *scales, D=self.head_dim, CAUSAL=self.causal, BLOCK_M=block_m,
                         BLOCK_N=block_n, num_warps=warps, num_stages=stages)

        if not self.tuned:
            with_choice(UNTUNED[name])
            return
        key = (name, self.head_dim, self.causal)
        if key not in chosen:
            chosen[key] = fastest(CHOICES[key[:2]], with_choice)
        with_choice(chosen[key])

    def forward(self):
        self.launch("forward", forward_kernel, "m", self.q, self.k, self.v, self.out, self.lse,
                    scales=[self.scale * LOG2_E])

    def backward(self):
        rows = self.batch * self.heads * self.seqlen
        delta_kernel[(rows // TILE_MULTIPLE,)](self.out, self.dout, self.delta, D=self.head_dim, BLOCK_M=TILE_MULTIPLE)
        scales = [self.scale, self.scale * LOG2_E]
        self.launch("dkdv", dkdv_kernel, "n", self.q, self.k, self.v, self.dout, self.lse, self.delta, self.dk, self.dv,
                    scales=scales)
        self.launch("dq", dq_kernel, "m", self.q, self.k, self.v, self.dout, self.lse, self.delta, self.dq,
                    scales=scales)
