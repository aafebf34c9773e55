# SPDX-License-Identifier: Apache-2.0
"""Attention on torch tensors under a mask beside causal and windows, or with score modifiers: forward and backward, on
CPU and CUDA, where tables of the mask and numbers of heads go to the device with the tensors."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from .. import _native
from ..errors import bad_input
from ..places import NOWHERE
from ..problem import SCORE_MODS, Problem
from . import launches
from .launches import Options, chosen_kernel, enqueue_on_current_stream

_MOST_LAUNCHES = 64  # that are remembered, with their tables on the device


@torch.compiler.disable
def modified_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: Options, layout: str, mask: str,
    score_mods: dict[str, Any], seed: Any,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """out, in `layout`, and lse, of q, k and v in `layout`. Gradients go to q, k, v and a learned sink."""
    fields, numbers = _fields_of(q, layout, score_mods)
    problem = Problem.of(
        q, k, v, layout=layout, causal=options.causal, window=(options.window_left, options.window_right),
        scale=options.scale, dropout=options.dropout, seed=0 if seed is None else int(seed), mask=mask, **fields,
    )  # fmt: skip
    if layout == "bnhd":
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    out, lse = _Modified.apply(q, k, v, numbers["alibi"], numbers["learned_sink"], problem, options)
    return out.transpose(1, 2) if layout == "bnhd" else out, lse


def _fields_of(q: torch.Tensor, layout: str, score_mods: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of a Problem; slopes and sinks (H,) float32 on q's device, None where there are none."""
    fields: dict[str, Any] = {}
    numbers: dict[str, Any] = {"alibi": None, "learned_sink": None}
    heads = q.shape[1 if layout == "bhnd" else 2] if q.dim() == 4 else 0
    for name, value in score_mods.items():
        if name not in SCORE_MODS:
            raise TypeError(f"there is no argument {name!r}; score modifiers are {', '.join(SCORE_MODS)}")
        if name not in numbers:
            fields[name] = value
            continue
        if name == "learned_sink" and value is True:
            raise bad_input(name, "True", "must be a tensor of shape (H,): the sinks are inputs")
        if value is None or value is False:
            continue
        if value is True:
            value = _papers_slopes(heads, q.device)
        held = torch.as_tensor(value, dtype=torch.float32, device=q.device).contiguous()
        if tuple(held.shape) != (heads,):
            raise bad_input(name, f"a tensor of shape {tuple(held.shape)}", f"must have the shape ({heads},)")
        if name == "alibi" and held.requires_grad:
            raise bad_input(name, "a tensor that requires a gradient", "must be detached: slopes have no gradient")
        fields[name], numbers[name] = True, held
    return fields, numbers


@functools.lru_cache(_MOST_LAUNCHES)
def _papers_slopes(heads: int, device: torch.device) -> torch.Tensor:
    return torch.tensor([_native.alibi_slope(head, heads) for head in range(heads)], device=device)


class _Modified(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, slopes, sink, problem, options):
        numbers = {"alibi_slopes": slopes, "sink": sink}
        out, lse = (_forward_on_device if q.is_cuda else _forward_on_host)(q, k, v, numbers, problem, options)
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        ctx.problem, ctx.options = problem, options
        ctx.save_for_backward(q, k, v, out, lse, slopes, sink)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, dout, _):
        if dout is None:  # nothing depends on the output
            return (None,) * 7
        q, k, v, out, lse, slopes, sink = ctx.saved_tensors
        numbers = {"alibi_slopes": slopes, "sink": sink}
        dsink = None if sink is None else torch.empty_like(sink)
        run = _backward_on_device if q.is_cuda else _backward_on_host
        gradients = run(dout, q, k, v, out, lse, numbers, dsink, ctx.problem, ctx.options)
        return (*gradients, None, dsink, None, None)


def numbers_place(numbers: torch.Tensor | None) -> Any:
    return NOWHERE if numbers is None else (numbers.data_ptr(), (0, 1, 0, 1))


def places(*tensors: torch.Tensor) -> list[Any]:
    return [launches.place_of(tensor) for tensor in tensors]


def _forward_on_host(q, k, v, numbers, problem, options):
    out, lse = launches.out_like(q, v.shape[-1]), launches.lse_of(q, True)
    _native.attention_forward(
        problem._handle, chosen_kernel(problem._handle, options, q.device, False), *places(q, k, v, out, lse),
        (NOWHERE,) * 3, tuple(numbers_place(held) for held in numbers.values()),
    )  # fmt: skip
    return out, lse


def _backward_on_host(dout, q, k, v, out, lse, numbers, dsink, problem, options):
    gradients = launches.gradients_like(q, k, v)
    _native.attention_backward(
        problem._handle, chosen_kernel(problem._handle, options, q.device, True),
        *places(dout, q, k, v, out, lse, *gradients),
        tuple(numbers_place(held) for held in numbers.values()), numbers_place(dsink),
    )  # fmt: skip
    return gradients


class _Launch(NamedTuple):
    launch: Any
    tables: list[torch.Tensor]  #: in the device's memory


@functools.lru_cache(_MOST_LAUNCHES)
def _launch_of(device: torch.device, problem: Problem, options: Options, backward: bool, given: Any) -> _Launch:
    """Made once for all tensors that lie in the same way; so are the tables."""
    use = chosen_kernel(problem._handle, options, device, backward)
    launch = _native.DeviceLaunch(problem._handle, use, backward, list(given))
    tables = [torch.frombuffer(bytearray(table), dtype=torch.int32).to(device) if table else
              torch.empty(4, dtype=torch.int32, device=device) for table in launch.take_tables()]  # fmt: skip
    return _Launch(launch, tables)


def _enqueue(tensors: dict[str, torch.Tensor], problem: Problem, options: Options, backward: bool) -> None:
    """Enqueues a direction on torch's current stream of the tensors' device, all of which kernels read in place."""
    device = tensors["q"].device
    with torch.cuda.device(device):
        given = tuple((name, tensor.stride()[:3] if tensor.dim() > 1 else (0, 0, 1)) for name, tensor in tensors.items())
        launch, tables = _launch_of(device, problem.replace(seed=0), options, backward, given)
        made = [torch.empty(shape, dtype=launches.TYPES_OF_WORKSPACES[dtype], device=device)
                for shape, dtype in launch.workspaces()]  # fmt: skip
        addresses = [tensor.data_ptr() for tensor in (*tensors.values(), *made, *tables)]
        enqueue_on_current_stream(launch, device, addresses, problem.dropout, problem.seed)


def _there(numbers: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor]:
    return {name: held for name, held in numbers.items() if held is not None}


def _forward_on_device(q, k, v, numbers, problem, options):
    q, k, v = (launches.fitting(tensor) for tensor in (q, k, v))
    out, lse = launches.out_like(q, v.shape[-1]), launches.lse_of(q, True)
    tensors = {"q": q, "k": k, "v": v, "out": out, "lse": lse, **_there(numbers)}
    _enqueue(tensors, problem, options, False)
    return out, lse


def _backward_on_device(dout, q, k, v, out, lse, numbers, dsink, problem, options):
    dout, q, k, v, out = (launches.fitting(tensor) for tensor in (dout, q, k, v, out))
    gradients = launches.gradients_like(q, k, v)
    tensors = dict(zip(launches.BACKWARD, (dout, q, k, v, out, lse.contiguous(), *gradients)))
    _enqueue({**tensors, **_there({**numbers, "dsink": dsink})}, problem, options, True)
    return gradients
