# SPDX-License-Identifier: Apache-2.0
# One attention problem, forward and backward, by other people's kernels: PyTorch's FlashAttention-2, cuDNN and
# memory-efficient back ends, a plain Triton kernel, and FlashAttention-4 where its packages are found; with --all also
# PyTorch's matrix products and FlexAttention, and flash-linear-attention's softmax attention. Takes the options that
# `tilescope explain` takes.
import argparse
import functools
import math

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel

try:
    from flash_attn.cute import flash_attn_func as flash4
except Exception:  # its packages compile as they are loaded, and fail in ways of their own
    flash4 = None
try:
    from fla.ops.attn import parallel_attn
except Exception:
    parallel_attn = None


@triton.jit
def triton_attn_forward(Q, K, V, Out, Lse, seqlen, scale_log2, group, D: tl.constexpr, BLOCK_M: tl.constexpr,
                        BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    m_block = tl.program_id(0)
    head = tl.program_id(1)
    rows = m_block * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, D)
    q_tile = head * seqlen * D + rows[:, None] * D + dims[None, :]
    kv_base = (head // group) * seqlen * D
    q = tl.load(Q + q_tile)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    end = (m_block + 1) * BLOCK_M if CAUSAL else seqlen
    for start in range(0, end, BLOCK_N):
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


def triton_attention(rows, inner, q, k, v, dout, causal):
    """In tiles of `rows` of what a CTA owns by `inner` of what it streams."""
    batch, heads, seqlen, head_dim = q.shape
    group = heads // k.shape[1]
    scale = 1 / math.sqrt(head_dim)
    scale_log2 = scale * math.log2(math.e)
    out, dq, dk, dv = (torch.empty_like(x) for x in (q, q, k, v))
    lse, delta = (torch.empty(batch, heads, seqlen, device=q.device) for _ in range(2))
    blocks = seqlen // rows
    queries, keys = (blocks, batch * heads), (blocks, batch * k.shape[1])
    warps = rows // 16
    wide = dict(D=head_dim, BLOCK_M=rows, BLOCK_N=inner, CAUSAL=causal, num_warps=warps)
    tall = dict(D=head_dim, BLOCK_M=inner, BLOCK_N=rows, CAUSAL=causal, num_warps=warps)
    triton_attn_forward[queries](q, k, v, out, lse, seqlen, scale_log2, group, **wide, num_stages=2)
    triton_attn_delta[queries](out, dout, delta, seqlen, D=head_dim, BLOCK_M=rows)
    triton_attn_dkdv[keys](q, k, v, dout, lse, delta, dk, dv, seqlen, scale, scale_log2, group, **tall, num_stages=1)
    triton_attn_dq[queries](q, k, v, dout, lse, delta, dq, seqlen, scale, scale_log2, group, **wide, num_stages=1)
    return out, dq, dk, dv


def gradients_of(out, q, k, v, dout):
    out.backward(dout)
    grads = [x.grad for x in (q, k, v)]
    for x in (q, k, v):
        x.grad = None
    return [out.detach(), *grads]


def torch_attention(backend, q, k, v, dout, causal):
    with sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    return gradients_of(out, q, k, v, dout)


def flash4_attention(q, k, v, dout, causal):
    """Of FlashAttention-4, whose heads stand beside each other in a row."""
    rows = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]
    results = gradients_of(flash4(*rows, causal=causal)[0], *rows, dout.transpose(1, 2).contiguous())
    return [x.transpose(1, 2) for x in results]


def flex_attention_of(problem):
    """FlexAttention's template, compiled for the problem's mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = None
    if problem.causal:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, problem.seqlen_q, problem.seqlen_k)
    compiled = torch.compile(functools.partial(flex_attention, block_mask=mask, enable_gqa=True))
    return lambda q, k, v, dout, causal: gradients_of(compiled(q, k, v), q, k, v, dout)


def linear_library_attention(q, k, v, dout, causal):
    """Of flash-linear-attention, whose softmax attention is causal; heads stand beside each other in a row."""
    rows = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]
    results = gradients_of(parallel_attn(*rows), *rows, dout.transpose(1, 2).contiguous())
    return [x.transpose(1, 2) for x in results]


def libraries(problem):
    """What can compute the problem, by name."""
    found = {backend.name: functools.partial(torch_attention, backend)
             for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)}
    if problem.heads_kv != problem.heads:
        del found["EFFICIENT_ATTENTION"]  # it has no grouped heads
    if problem.seqlen_q == problem.seqlen_k and problem.seqlen_q % 128 == 0 and problem.head_dim in (64, 128):
        found["TRITON"] = functools.partial(triton_attention, *problem.triton_tile)  # its tiles are whole
    if flash4:
        found["FLASH_ATTENTION_4"] = flash4_attention
    if problem.all:
        found["MATH"] = functools.partial(torch_attention, SDPBackend.MATH)
        found["FLEX_ATTENTION"] = flex_attention_of(problem)
        if parallel_attn and problem.causal and problem.seqlen_q == problem.seqlen_k:
            found["FLASH_LINEAR_ATTENTION"] = linear_library_attention
    return found


options = argparse.ArgumentParser(description="Attention by other people's kernels, forward and backward.")
for name, default in (("batch", 1), ("heads", 16), ("heads-kv", None), ("seqlen", 4096), ("seqlen-q", None),
                      ("seqlen-k", None), ("head-dim", 128)):
    options.add_argument("--" + name, type=int, default=default)
options.add_argument("--dtype", choices=("fp16", "bf16"), default="fp16")
options.add_argument("--causal", action="store_true")
options.add_argument("--all", action="store_true", help="all libraries, not only those with kernels for any problem")
options.add_argument("--only", metavar="LIBRARY", help="one of them alone")
options.add_argument("--triton-tile", type=int, nargs=2, metavar=("ROWS", "INNER"), default=(128, 64),
                     help="of the Triton kernels")
options.add_argument("--warm", action="store_true", help="only compile the Triton kernels into their cache")
problem = options.parse_args()
problem.heads_kv = problem.heads_kv or problem.heads
problem.seqlen_q = problem.seqlen_q or problem.seqlen
problem.seqlen_k = problem.seqlen_k or problem.seqlen

torch.manual_seed(0)
dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[problem.dtype]
queries, keys = (problem.heads, problem.seqlen_q), (problem.heads_kv, problem.seqlen_k)
q, k, v, dout = (torch.randn(problem.batch, *shape, problem.head_dim, device="cuda", dtype=dtype)
                 for shape in (queries, keys, keys, queries))
found = libraries(problem)
if problem.warm:
    found = {name: found[name] for name in ("TRITON", "FLASH_ATTENTION_4", "FLEX_ATTENTION", "FLASH_LINEAR_ATTENTION")
             if name in found}
if problem.only:
    found = {name: found[name] for name in (problem.only,) if name in found}
expected, first = None, ""
for name, attention in found.items():
    for x in (q, k, v):
        x.requires_grad_(name != "TRITON")
    try:
        results = attention(q, k, v, dout, problem.causal)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        print(f"{name} refused: {str(error).strip().splitlines()[0][:100] if str(error).strip() else type(error).__name__}")
        continue
    if expected is None:
        expected, first = results, name
        continue
    for tensor, result, reference in zip(("out", "dq", "dk", "dv"), results, expected):
        error = (result.float() - reference.float()).abs().max().item()
        print(f"{name} against {first}, {tensor}: largest difference {error:.2e}")
torch.cuda.synchronize()
