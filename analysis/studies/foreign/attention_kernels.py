# SPDX-License-Identifier: Apache-2.0
# One attention problem, forward and backward, by other people's kernels: PyTorch's FlashAttention-2, cuDNN and
# memory-efficient back ends, a plain Triton kernel, and FlashAttention-4 where its packages are found; with --all also
# PyTorch's matrix products and FlexAttention, and flash-linear-attention's softmax attention. Takes the options that
# `tilescope explain` takes.
import argparse
import functools

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton_attention import triton_attention

try:
    from flash_attn.cute import flash_attn_func as flash4
except Exception:  # its packages compile as they are loaded, and fail in ways of their own
    flash4 = None
try:
    from fla.ops.attn import parallel_attn
except Exception:
    parallel_attn = None


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
