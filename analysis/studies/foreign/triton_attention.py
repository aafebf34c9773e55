# SPDX-License-Identifier: Apache-2.0
# FlashAttention-2's schedule in plain Triton: forward, delta, dK and dV, dQ. Tensors are (B, H, N, D), contiguous, their lengths
# multiples of the tiles.
import math

import triton
import triton.language as tl


@triton.jit
def triton_attn_forward(Q, K, V, Out, Lse, seqlen, scale_log2, group, D: tl.constexpr, BLOCK_M: tl.constexpr,
                        BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, SAWTOOTH: tl.constexpr, SIDE_BY_SIDE: tl.constexpr):
    m_block = tl.program_id(0)
    head = tl.program_id(1)
    if SIDE_BY_SIDE:  # the heads of a group, which share K and V
        head = head * group + m_block % group
        m_block = m_block // group
    rows = m_block * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, D)
    q_tile = head * seqlen * D + rows[:, None] * D + dims[None, :]
    kv_base = (head // group) * seqlen * D
    q = tl.load(Q + q_tile)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    end = (m_block + 1) * BLOCK_M if CAUSAL else seqlen
    for step in range(0, end, BLOCK_N):
        start = step
        if SAWTOOTH:
            start = tl.where(m_block % 2 == 1, end - BLOCK_N - step, step)
        keys = start + tl.arange(0, BLOCK_N)
        kv_tile = kv_base + keys[:, None] * D + dims[None, :]
        s = tl.dot(q, tl.trans(tl.load(K + kv_tile))) * scale_log2
        if CAUSAL:
            s = tl.where(rows[:, None] >= keys[None, :], s, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(s, 1))
        p = tl.exp2(s - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, 1)
        acc = tl.dot(p.to(Q.dtype.element_ty), tl.load(V + kv_tile), acc * rescale[:, None])
        row_max = new_max
    tl.store(Out + q_tile, (acc / row_sum[:, None]).to(Out.dtype.element_ty))
    tl.store(Lse + head * seqlen + rows, row_max + tl.log2(row_sum))  # base 2


@triton.jit
def triton_attn_delta(Out, DOut, Delta, seqlen, D: tl.constexpr, BLOCK_M: tl.constexpr):
    rows = tl.program_id(1) * seqlen + tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    tile = rows[:, None] * D + tl.arange(0, D)[None, :]
    product = tl.load(Out + tile).to(tl.float32) * tl.load(DOut + tile).to(tl.float32)
    tl.store(Delta + rows, tl.sum(product, 1))


@triton.jit
def triton_attn_dkdv(Q, K, V, DOut, Lse, Delta, DK, DV, seqlen, scale, scale_log2, group, D: tl.constexpr,
                     BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    n_block = tl.program_id(0)
    kv_head = tl.program_id(1)
    keys = n_block * BLOCK_N + tl.arange(0, BLOCK_N)
    dims = tl.arange(0, D)
    kv_tile = kv_head * seqlen * D + keys[:, None] * D + dims[None, :]
    k = tl.load(K + kv_tile)
    v = tl.load(V + kv_tile)
    dk = tl.zeros([BLOCK_N, D], tl.float32)
    dv = tl.zeros([BLOCK_N, D], tl.float32)
    first = (n_block * BLOCK_N // BLOCK_M) * BLOCK_M if CAUSAL else 0
    for head in range(kv_head * group, (kv_head + 1) * group):
        for start in range(first, seqlen, BLOCK_M):
            rows = start + tl.arange(0, BLOCK_M)
            q_tile = head * seqlen * D + rows[:, None] * D + dims[None, :]
            q = tl.load(Q + q_tile)
            dout = tl.load(DOut + q_tile)
            lse = tl.load(Lse + head * seqlen + rows)
            delta = tl.load(Delta + head * seqlen + rows)
            p = tl.exp2(tl.dot(k, tl.trans(q)) * scale_log2 - lse[None, :])
            if CAUSAL:
                p = tl.where(rows[None, :] >= keys[:, None], p, 0.0)
            dv = tl.dot(p.to(q.dtype), dout, dv)
            ds = p * (tl.dot(v, tl.trans(dout)) - delta[None, :])
            dk = tl.dot(ds.to(q.dtype), q, dk)
    tl.store(DK + kv_tile, (dk * scale).to(DK.dtype.element_ty))
    tl.store(DV + kv_tile, dv.to(DV.dtype.element_ty))


@triton.jit
def triton_attn_dq(Q, K, V, DOut, Lse, Delta, DQ, seqlen, scale, scale_log2, group, D: tl.constexpr,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    m_block = tl.program_id(0)
    head = tl.program_id(1)
    rows = m_block * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, D)
    q_tile = head * seqlen * D + rows[:, None] * D + dims[None, :]
    kv_base = (head // group) * seqlen * D
    q = tl.load(Q + q_tile)
    dout = tl.load(DOut + q_tile)
    lse = tl.load(Lse + head * seqlen + rows)
    delta = tl.load(Delta + head * seqlen + rows)
    dq = tl.zeros([BLOCK_M, D], tl.float32)
    end = (m_block + 1) * BLOCK_M if CAUSAL else seqlen
    for start in range(0, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        kv_tile = kv_base + keys[:, None] * D + dims[None, :]
        k = tl.load(K + kv_tile)
        p = tl.exp2(tl.dot(q, tl.trans(k)) * scale_log2 - lse[:, None])
        if CAUSAL:
            p = tl.where(rows[:, None] >= keys[None, :], p, 0.0)
        ds = p * (tl.dot(dout, tl.trans(tl.load(V + kv_tile))) - delta[:, None])
        dq = tl.dot(ds.to(q.dtype), k, dq)
    tl.store(DQ + q_tile, (dq * scale).to(DQ.dtype.element_ty))


def tiles_of(name, rows, inner):
    """The constants of a kernel, whose CTAs own `rows` and stream `inner` at a time."""
    wide = name != "triton_attn_dkdv"
    return dict(BLOCK_M=rows if wide else inner, BLOCK_N=inner if wide else rows)


def triton_attention(rows, inner, q, k, v, dout, causal, only=None, warps=None, sawtooth=False, side_by_side=False):
    """In tiles of `rows` of what a CTA owns by `inner` of what it streams. `only` names the kernel that is launched in
    these tiles, by so many warps; the others then have 128 x 64."""
    batch, heads, seqlen, head_dim = q.shape
    group = heads // k.shape[1]
    scale = 1 / math.sqrt(head_dim)
    scale_log2 = scale * math.log2(math.e)
    out, dq, dk, dv = (x.new_empty(x.shape) for x in (q, q, k, v))
    lse, delta = (q.new_empty(q.shape[:3]).float() for _ in range(2))

    def launch(kernel, heads, *tensors, num_stages, **constants):
        asked = only in (None, kernel.__name__)
        m, n = (rows, inner) if asked else (128, 64)
        grid = (seqlen // m, batch * heads)
        if constants.get("SIDE_BY_SIDE"):
            grid = (grid[0] * group, grid[1] // group)
        kernel[grid](*tensors, D=head_dim, **tiles_of(kernel.__name__, m, n), CAUSAL=causal, num_stages=num_stages,
                     num_warps=warps if asked and warps else m // 16, **constants)

    numbers = seqlen, scale, scale_log2, group
    launch(triton_attn_forward, heads, q, k, v, out, lse, seqlen, scale_log2, group, num_stages=2, SAWTOOTH=sawtooth,
           SIDE_BY_SIDE=side_by_side)
    if only == "triton_attn_forward":
        return out, dq, dk, dv
    triton_attn_delta[seqlen // 128, batch * heads](out, dout, delta, seqlen, D=head_dim, BLOCK_M=128)
    launch(triton_attn_dkdv, k.shape[1], q, k, v, dout, lse, delta, dk, dv, *numbers, num_stages=1)
    launch(triton_attn_dq, heads, q, k, v, dout, lse, delta, dq, *numbers, num_stages=1)
    return out, dq, dk, dv
