# SPDX-License-Identifier: Apache-2.0
"""Attention on torch's tensors, eagerly: on the CPU at once, on a device enqueued on torch's current stream.

Strides are free: what a kernel cannot read in place is copied.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from .. import _native

_TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8e4m3",
    torch.float8_e5m2: "fp8e5m2",
}
TYPES_OF_WORKSPACES = {name: dtype for dtype, name in _TYPES.items()}
_NOWHERE = (0, (0, 0, 0, 0))
MOST_ROW_STRIDE = _native.most_row_stride()
MOST_WAYS = 4096  # of calling, that are remembered


class Options(NamedTuple):
    """Those of the operators but the seed, in their order."""

    causal: bool
    window_left: int
    window_right: int
    scale: float
    dropout: float
    kernel: str  #: empty: the fastest that computes the problem on the tensors' device
    backward: str  #: order of the backward pass, or DETERMINISTIC; empty: the kernel's own
    block_m: int  #: 0: the kernel's own tile
    block_n: int

    @classmethod
    def of(
        cls, q: torch.Tensor, *, causal: bool = False, window: tuple[int, int] = (-1, -1), scale: float | None = None,
        dropout: float = 0.0, kernel: str | None = None, backward: str | None = None, tile: tuple[int, int] | None = None,
    ) -> Options:  # fmt: skip
        """What is left open is filled in from q's head dimension and torch's settings."""
        if backward is None and torch.are_deterministic_algorithms_enabled():
            backward = DETERMINISTIC
        scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        return cls(causal, *window, scale, dropout, kernel or "", backward or "", *(tile or (0, 0)))


#: In place of an order of the backward pass: whichever of the kernel's sums in the same order each time.
DETERMINISTIC = "deterministic"


@functools.lru_cache(MOST_WAYS)
def _problem(shape_q: Any, shape_v: Any, dtype: torch.dtype, options: Options) -> Any:
    batch, heads, seqlen_q, head_dim = shape_q
    return _native.Problem(
        batch, heads, shape_v[1], seqlen_q, shape_v[2], head_dim, _TYPES[dtype], options.causal,
        (options.window_left, options.window_right), options.scale, options.dropout, 0, head_dim_v=shape_v[3],
    )  # fmt: skip


def chosen_kernel(problem: Any, options: Options, device: torch.device, backward: bool) -> Any:
    """The kernel that is asked for, or the fastest that computes the problem on the device."""
    major, minor = torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)
    tile = (options.block_m, options.block_n) if options.block_m else None
    return _native.choose_kernel(problem, options.kernel, tile, options.backward, 10 * major + minor, backward)


@functools.lru_cache(MOST_WAYS)
def use_of(
    device: torch.device, shape_q: Any, shape_v: Any, dtype: torch.dtype, options: Options, backward: bool
) -> Any:
    """Chosen here and not by the caller, since a tracer would look into the choice."""
    return chosen_kernel(_problem(shape_q, shape_v, dtype, options), options, device, backward)


def place_of(tensor: torch.Tensor) -> tuple[int, tuple[int, ...]]:
    return tensor.data_ptr(), tensor.stride() if tensor.dim() == 4 else (*tensor.stride(), 1)


def out_like(q: torch.Tensor, columns: int) -> torch.Tensor:
    """In the order of q's dimensions, with so many columns side by side."""
    dtype = torch.bfloat16 if q.dtype.itemsize == 1 else q.dtype
    last = q.dim() - 1
    order = sorted(range(last), key=q.stride, reverse=True) if q.stride(last) == 1 else range(last)
    return torch.empty_permuted((*q.shape[:last], columns), (*order, last), dtype=dtype, device=q.device)


def lse_of(q: torch.Tensor, keep_lse: bool) -> torch.Tensor:
    return q.new_empty(q.shape[:3] if keep_lse else (0,), dtype=torch.float32)


def gradients_like(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors)


def _forward_on_cpu(q, k, v, seed, options, keep_lse):
    out, lse = out_like(q, v.shape[-1]), lse_of(q, keep_lse)
    _native.attention_forward(
        _with_seed(_problem(q.shape, v.shape, q.dtype, options), seed),
        use_of(q.device, q.shape, v.shape, q.dtype, options, False),
        place_of(q), place_of(k), place_of(v), place_of(out), place_of(lse) if keep_lse else _NOWHERE,
    )  # fmt: skip
    return out, lse


def _backward_on_cpu(dout, q, k, v, out, lse, seed, options):
    gradients = gradients_like(q, k, v)
    _native.attention_backward(
        _with_seed(_problem(q.shape, v.shape, q.dtype, options), seed),
        use_of(q.device, q.shape, v.shape, q.dtype, options, True),
        *(place_of(tensor) for tensor in (dout, q, k, v, out, lse, *gradients)),
    )
    return gradients


def _with_seed(problem, seed):
    return problem if seed is None else problem.with_seed(int(seed))


@functools.lru_cache(MOST_WAYS)
def rows_fit(shape: Any, strides: tuple[int, ...], itemsize: int) -> bool:
    chunk = 16 // itemsize if shape[-1] * itemsize % 16 == 0 else 1
    return strides[-1] == 1 and strides[-2] <= MOST_ROW_STRIDE and all(
        size == 1 or (stride > 0 and stride % chunk == 0) for size, stride in zip(shape[:-1], strides[:-1])
    )


def fitting(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor where every kernel can read it in place: columns side by side, rows that begin at 16 bytes wherever rows
    of this length can, none too far from the next. Others are copied: gradients of sums have strides of 0."""
    fits = tensor.data_ptr() % 16 == 0 and rows_fit(tensor.shape, tensor.stride(), tensor.itemsize)
    return tensor if fits else tensor.clone(memory_format=torch.contiguous_format)


_FORWARD = ("q", "k", "v", "out", "lse")
BACKWARD = ("dout", "q", "k", "v", "out", "lse", "dq", "dk", "dv")


class _Way(NamedTuple):
    """What a call does on a device, found out once for all tensors that lie in the same way."""

    launch: Any  #: None: no kernel can read the inputs in place, even if they begin at 16 bytes
    made: list[tuple[Any, tuple[int, ...], torch.dtype]]  #: shape, strides and type of outputs, then of workspaces


@functools.lru_cache(MOST_WAYS)
def way_of(
    device: torch.device, dtype: torch.dtype, shape_q: Any, shape_v: Any, stride_q: Any, strides: Any, options: Options,
    backward: bool,
) -> _Way:  # fmt: skip
    shape_out = (*shape_q[:3], shape_v[3])
    shapes = {"k": (*shape_v[:3], shape_q[3]), "v": shape_v, "out": shape_out, "dout": shape_out}
    names = BACKWARD if backward else _FORWARD
    inputs = [
        torch.empty_strided(shapes.get(name, shape_q), of_input, dtype=dtype, device="meta")
        for name, of_input in zip(names, strides)
    ]
    if not all(rows_fit(tensor.shape, tensor.stride(), tensor.itemsize) for tensor in inputs):
        return _Way(None, [])
    if backward:
        inputs.append(lse_of(inputs[1], True))
        outputs = gradients_like(*inputs[1:4])
    else:
        given_q = torch.empty_strided(shape_q, stride_q, dtype=dtype, device="meta")  # which may have been copied
        outputs = (out_like(given_q, shape_v[3]), lse_of(given_q, True))
    given = [(name, tensor.stride()[:3]) for name, tensor in zip(names, (*inputs, *outputs))]
    problem = _problem(shape_q, shape_v, dtype, options)
    launch = _native.DeviceLaunch(problem, use_of(device, shape_q, shape_v, dtype, options, backward), backward, given)
    workspaces = [torch.empty(s, dtype=TYPES_OF_WORKSPACES[t], device="meta") for s, t in launch.workspaces()]
    return _Way(launch, [(tensor.shape, tensor.stride(), tensor.dtype) for tensor in (*outputs, *workspaces)])


def _enqueue(
    q: torch.Tensor,
    v: torch.Tensor,
    inputs: Sequence[torch.Tensor],
    lse: torch.Tensor | None,
    seed: Any,
    options: Options,
) -> list[torch.Tensor]:
    """Enqueues a direction on torch's current stream: forward, or with an LSE backward. Torch's allocator orders what is
    freed here on that stream. Returns the outputs, and behind them workspaces."""
    device = q.device
    if device.index != torch._C._cuda_getDevice():
        with torch.cuda.device(device):
            return _enqueue(q, v, inputs, lse, seed, options)
    strides = tuple([tensor.stride() for tensor in inputs])
    way = way_of(device, q.dtype, q.shape, v.shape, q.stride(), strides, options, lse is not None)
    addresses = [tensor.data_ptr() for tensor in inputs]
    if way.launch is None or functools.reduce(operator.or_, addresses) % 16:
        return _enqueue(q, v, [fitting(tensor) for tensor in inputs], lse, seed, options)
    if lse is not None:
        addresses.append(lse.data_ptr())
    made = [torch.empty_strided(*place, dtype=dtype, device=device) for *place, dtype in way.made]
    addresses += [tensor.data_ptr() for tensor in made]
    enqueue_on_current_stream(way.launch, device, addresses, options.dropout, 0 if seed is None else int(seed))
    return made


def enqueue_on_current_stream(
    launch: Any, device: torch.device, addresses: list[int], dropout: float, seed: int
) -> None:
    """A launch that a graph captures counts its work in memory of its own."""
    counter = None
    if torch._C._cuda_isCurrentStreamCapturing():
        if dropout > 0:
            raise RuntimeError(
                "tilescope: a captured graph would drop the same probabilities at each replay; use dropout = 0"
            )
        counter = torch.zeros(2, dtype=torch.int32, device=device)
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    launch.enqueue(stream, addresses, 0 if counter is None else counter.data_ptr(), seed)


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seed: Any, options: Options, keep_lse: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """What lse holds that is not kept is undefined."""
    if q.is_cuda:  # where a kernel writes its LSE whether it is wanted or not
        out, lse, *_ = _enqueue(q, v, (q, k, v), None, seed, options)
        return out, lse
    return _forward_on_cpu(q, k, v, seed, options, keep_lse)


def backward(dout, q, k, v, out, lse, seed, options):
    if q.is_cuda:
        return _enqueue(q, v, (dout, q, k, v, out), lse.contiguous(), seed, options)[:3]
    return _backward_on_cpu(dout, q, k, v, out, lse, seed, options)
