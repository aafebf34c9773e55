# SPDX-License-Identifier: Apache-2.0
"""The operators ``torch.ops.tilescope.attention_forward`` and ``attention_backward``.

Two functional operators, so that torch.compile traces the backward formula as well. What a kernel needs of a tensor, its
address and the current stream, is read inside the implementations, where no tracer looks. Strides are free: what
a kernel cannot read in place it copies.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import torch

from .. import _native

_OPTIONS = (
    "Tensor seed, bool causal, int window_left, int window_right, float scale, float dropout, str kernel, "
    "str backward, int block_m, int block_n"
)
_LIBRARY = torch.library.Library("tilescope", "DEF")
_LIBRARY.define(
    f"attention_forward(Tensor q, Tensor k, Tensor v, {_OPTIONS}, bool keep_lse) -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_LIBRARY.define(
    "attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"{_OPTIONS}) -> (Tensor, Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag,),
)

_TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8e4m3",
    torch.float8_e5m2: "fp8e5m2",
}
_NOWHERE = (0, (0, 0, 0, 0))


def _problem(q: Any, k: Any, seed: Any, causal: bool, left: int, right: int, scale: float, dropout: float) -> Any:
    batch, heads, seqlen_q, head_dim = q.shape
    return _native.Problem(
        batch, heads, k.shape[1], seqlen_q, k.shape[2], head_dim, _TYPES[q.dtype], causal, (left, right), scale,
        dropout, int(seed),
    )  # fmt: skip


@functools.cache
def _has_flash3(device: torch.device) -> bool:
    rows = {row["name"]: row for row in json.loads(_native.catalogue("kernels"))}
    return torch.cuda.get_device_capability(device) == (9, 0) and rows["gpu:flash3"]["runs_here"]


def _kernel_for(q: torch.Tensor, dropout: float, backward: str) -> str:
    """The fastest that computes this: on Hopper gpu:flash3, which has no dropout, no split order of the backward pass, and
    needs rows of whole 16-byte chunks."""
    if q.device.type == "cpu":
        return "cpu:flash2"
    if q.dtype == torch.float32:
        return "gpu:flash2-simt"
    fits = dropout == 0 and backward in ("", "fused") and q.shape[-1] % 8 == 0
    return "gpu:flash3" if fits and _has_flash3(q.device) else "gpu:flash2-mma"


def _use(q: torch.Tensor, dropout: float, kernel: str, backward: str, block_m: int, block_n: int) -> Any:
    """Chosen here and not by the caller: a tracer would look into the choice."""
    tile = (block_m, block_n) if block_m else None
    return _native.KernelUse(kernel or _kernel_for(q, dropout, backward), tile, backward or None)


def _place(tensor: torch.Tensor) -> tuple[int, tuple[int, ...]]:
    return tensor.data_ptr(), tensor.stride() if tensor.dim() == 4 else (*tensor.stride(), 1)


def _out_like(q: torch.Tensor) -> torch.Tensor:
    """In the order of q's dimensions, with columns side by side."""
    order = torch.preserve_format if q.stride(-1) == 1 else torch.contiguous_format
    return torch.empty_like(q, dtype=torch.bfloat16 if q.dtype.itemsize == 1 else q.dtype, memory_format=order)


def _lse_of(q: torch.Tensor, keep_lse: bool) -> torch.Tensor:
    return q.new_empty(q.shape[:3] if keep_lse else (0,), dtype=torch.float32)


def _gradients_like(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors)


def _forward_on_cpu(
    q, k, v, seed, causal, window_left, window_right, scale, dropout, kernel, backward, block_m, block_n, keep_lse
):
    out, lse = _out_like(q), _lse_of(q, keep_lse)
    _native.attention_forward(
        _problem(q, k, seed, causal, window_left, window_right, scale, dropout),
        _use(q, dropout, kernel, backward, block_m, block_n),
        _place(q), _place(k), _place(v), _place(out), _place(lse) if keep_lse else _NOWHERE,
    )  # fmt: skip
    return out, lse


def _backward_on_cpu(
    dout, q, k, v, out, lse, seed, causal, window_left, window_right, scale, dropout, kernel, backward, block_m, block_n
):
    gradients = _gradients_like(q, k, v)
    _native.attention_backward(
        _problem(q, k, seed, causal, window_left, window_right, scale, dropout),
        _use(q, dropout, kernel, backward, block_m, block_n),
        *(_place(tensor) for tensor in (dout, q, k, v, out, lse, *gradients)),
    )
    return gradients


def _fitting(tensor):
    """The tensor where every kernel can read it in place: columns side by side, rows that begin at 16 bytes wherever rows
    of this length can. Others are copied: gradients of sums have strides of 0."""
    chunk = 16 // tensor.itemsize if tensor.shape[-1] * tensor.itemsize % 16 == 0 else 1
    fits = tensor.stride(-1) == 1 and tensor.data_ptr() % 16 == 0
    for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1]):
        fits = fits and (size == 1 or (stride > 0 and stride % chunk == 0))
    return tensor if fits else tensor.clone(memory_format=torch.contiguous_format)


def _launch(problem, use, backward, device, named):
    """Enqueues a direction on torch's current stream. Torch's allocator orders what is freed here on that stream."""
    types = {name: dtype for dtype, name in _TYPES.items()}
    with torch.cuda.device(device):
        needed = _native.device_workspaces(problem, use, backward, list(named))
        workspaces = {name: torch.empty(shape, dtype=types[dtype], device=device) for name, shape, dtype in needed}
        counter = torch.zeros(2, dtype=torch.int32, device=device)
        places = [(name, tensor.data_ptr(), tensor.stride()[:3]) for name, tensor in (named | workspaces).items()]
        stream = torch.cuda.current_stream(device).cuda_stream
        _native.device_launch(problem, use, backward, stream, places, counter.data_ptr())


def _forward_on_cuda(
    q, k, v, seed, causal, window_left, window_right, scale, dropout, kernel, backward, block_m, block_n, keep_lse
):
    _refuse_frozen_dropout(dropout)
    out, lse = _out_like(q), _lse_of(q, keep_lse)
    # A kernel writes its LSE whether it is wanted or not.
    sums = lse if keep_lse else q.new_empty(q.shape[:3], dtype=torch.float32)
    named = {"q": _fitting(q), "k": _fitting(k), "v": _fitting(v), "out": out, "lse": sums.unsqueeze(-1)}
    problem = _problem(q, k, seed, causal, window_left, window_right, scale, dropout)
    _launch(problem, _use(q, dropout, kernel, backward, block_m, block_n), False, q.device, named)
    return out, lse


def _backward_on_cuda(
    dout, q, k, v, out, lse, seed, causal, window_left, window_right, scale, dropout, kernel, backward, block_m, block_n
):
    _refuse_frozen_dropout(dropout)
    dq, dk, dv = gradients = _gradients_like(q, k, v)
    inputs = {"dout": dout, "q": q, "k": k, "v": v, "out": out}
    named = {name: _fitting(tensor) for name, tensor in inputs.items()}
    named |= {"lse": lse.contiguous().unsqueeze(-1), "dq": dq, "dk": dk, "dv": dv}
    problem = _problem(q, k, seed, causal, window_left, window_right, scale, dropout)
    _launch(problem, _use(q, dropout, kernel, backward, block_m, block_n), True, q.device, named)
    return gradients


def _refuse_frozen_dropout(dropout):
    if dropout > 0 and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "tilescope: a captured graph would drop the same probabilities at each replay; use dropout = 0"
        )


def _fake_forward(q, k, v, *options):
    return _out_like(q), _lse_of(q, options[-1])


def _fake_backward(dout, q, k, v, *rest):
    return _gradients_like(q, k, v)


_LIBRARY.impl("attention_forward", _forward_on_cpu, "CPU")
_LIBRARY.impl("attention_forward", _forward_on_cuda, "CUDA")
_LIBRARY.impl("attention_backward", _backward_on_cpu, "CPU")
_LIBRARY.impl("attention_backward", _backward_on_cuda, "CUDA")
torch.library.register_fake("tilescope::attention_forward", _fake_forward, lib=_LIBRARY)
torch.library.register_fake("tilescope::attention_backward", _fake_backward, lib=_LIBRARY)


def _save(ctx, inputs, output):
    q, k, v, seed, *options, keep_lse = inputs
    out, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.options, ctx.kept = options, keep_lse
    ctx.save_for_backward(q, k, v, out, lse, seed)


def _gradient(ctx, dout, _):
    if not ctx.kept:
        raise RuntimeError("tilescope::attention_forward ran with keep_lse = False: there is nothing to go back from")
    q, k, v, out, lse, seed = ctx.saved_tensors
    dq, dk, dv = torch.ops.tilescope.attention_backward(dout, q, k, v, out, lse, seed, *ctx.options)
    return (dq, dk, dv, *(None,) * 11)


def _no_second_derivative(ctx, *gradients):
    raise RuntimeError(
        "tilescope::attention_backward has no derivative: attention's second derivatives are not computed"
    )


torch.library.register_autograd("tilescope::attention_forward", _gradient, setup_context=_save, lib=_LIBRARY)
torch.library.register_autograd("tilescope::attention_backward", _no_second_derivative, lib=_LIBRARY)


def _folded(info, in_dims, tensors):
    """Tensors whose mapped dimension has become part of the batch; those without one are repeated."""
    folded = []
    for tensor, dim in zip(tensors, in_dims):
        mapped = tensor.movedim(dim, 0) if dim is not None else tensor.expand(info.batch_size, *tensor.shape)
        folded.append(mapped.flatten(0, 1))
    return folded


def _mapped(operator, count):
    def rule(info, in_dims, *arguments):
        if in_dims[count] is not None:
            raise RuntimeError("tilescope: attention cannot be mapped over its seed")
        results = operator(*_folded(info, in_dims, arguments[:count]), *arguments[count:])
        unfolded = tuple(
            result.unflatten(0, (info.batch_size, -1)) if result.numel() else result.expand(info.batch_size, 0)
            for result in results
        )
        return unfolded, (0,) * len(unfolded)

    return rule


for _operator, _count in (("attention_forward", 3), ("attention_backward", 6)):
    torch.library.register_vmap(
        f"tilescope::{_operator}", _mapped(getattr(torch.ops.tilescope, _operator), _count), lib=_LIBRARY
    )
