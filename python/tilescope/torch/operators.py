# SPDX-License-Identifier: Apache-2.0
"""The operators ``torch.ops.tilescope.attention_forward`` and ``attention_backward``.

Two functional operators, so that torch.compile traces the backward formula as well. What a kernel needs of a tensor, its
address and the current stream, is read inside the implementations, where no tracer looks.
"""

from __future__ import annotations

from typing import Any

import torch

from .launches import Options, backward, forward, gradients_like, lse_of, out_like

_OPTIONS = (
    "Tensor? seed, bool causal, int window_left, int window_right, float scale, float dropout, str kernel, "
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


def _forward_operator(q, k, v, seed, *rest):
    *options, keep_lse = rest
    out, lse = forward(q, k, v, seed, Options(*options), keep_lse)
    return out, lse if keep_lse else lse_of(q, False)


def _backward_operator(dout, q, k, v, out, lse, seed, *options):
    return tuple(backward(dout, q, k, v, out, lse, seed, Options(*options)))


def _fake_forward(q, k, v, *options):
    return out_like(q, v.shape[-1]), lse_of(q, options[-1])


def _fake_backward(dout, q, k, v, *rest):
    return gradients_like(q, k, v)


for _key in ("CPU", "CUDA"):
    _LIBRARY.impl("attention_forward", _forward_operator, _key)
    _LIBRARY.impl("attention_backward", _backward_operator, _key)
torch.library.register_fake("tilescope::attention_forward", _fake_forward, lib=_LIBRARY)
torch.library.register_fake("tilescope::attention_backward", _fake_backward, lib=_LIBRARY)


def _save(ctx, inputs, output):
    q, k, v, seed, *options, keep_lse = inputs
    out, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)
    ctx.options, ctx.kept = options, keep_lse
    ctx.save_for_backward(q, k, v, out, lse, seed)


def _gradient(ctx, dout, _):
    if not ctx.kept:
        raise RuntimeError("tilescope::attention_forward ran with keep_lse = False: there is nothing to go back from")
    if dout is None:  # nothing depends on the output
        return (None,) * 14
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


class Eager(torch.autograd.Function):
    """What the operators do, without the dispatcher between: it costs the host several times what the call itself does."""

    @staticmethod
    def forward(ctx, q, k, v, seed, options):
        out, lse = forward(q, k, v, seed, options, True)
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        ctx.seed, ctx.options = seed, options
        ctx.save_for_backward(q, k, v, out, lse)
        return out, lse

    @staticmethod
    def backward(ctx, dout, _):
        if dout is None:
            return (None,) * 5
        q, k, v, out, lse = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants second derivatives, and the operator refuses them
            gradients = torch.ops.tilescope.attention_backward(dout, q, k, v, out, lse, ctx.seed, *ctx.options)
        else:
            gradients = backward(dout, q, k, v, out, lse, ctx.seed, ctx.options)
        return (*gradients, None, None)


#: Where torch says who looks. A torch without one of these has all calls go by the operators.
_CAN_TELL = all(
    hasattr(place, name)
    for place, names in (
        (torch._C, ("_len_torch_dispatch_stack", "_are_functorch_transforms_active", "_get_tracing_state")),
        (torch.autograd.forward_ad, ("_current_level",)),
        (torch.autograd.profiler, ("_is_profiler_enabled",)),
    )
    for name in names
)


def needs_no_dispatcher(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    """Whether nothing but autograd has to know of the call: no compiler, tracer, transform, mode, subclass or profiler."""
    plain = (torch.Tensor, torch.nn.Parameter)
    return (
        _CAN_TELL
        and type(q) in plain
        and type(k) in plain
        and type(v) in plain
        and (q.is_cuda or q.is_cpu)
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._are_functorch_transforms_active()
        and torch._C._get_tracing_state() is None
        and torch.autograd.forward_ad._current_level < 0
        and not torch.autograd.profiler._is_profiler_enabled
    )


def attention(q: Any, k: Any, v: Any, seed: Any, options: Options, keep_lse: bool, needs_gradient: bool) -> Any:
    """(out, lse) by the shortest way that does."""
    if torch.compiler.is_compiling() or not needs_no_dispatcher(q, k, v):
        return torch.ops.tilescope.attention_forward(q, k, v, seed, *options, keep_lse)
    if needs_gradient:
        return Eager.apply(q, k, v, seed, options)
    return forward(q, k, v, seed, options, keep_lse)
