# SPDX-License-Identifier: Apache-2.0
"""Attention on torch tensors whose keys and values lie in pages of pools, forward, on CPU and CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import _native
from ..errors import bad_input
from ..kernel_use import kernel_use
from ..paged import _checked, _pages_of
from ..places import NOWHERE
from . import launches
from .launches import Options

_ENTRIES_A_SECTOR = 8  # kernels load whole ones


@torch.compiler.disable
def paged_attention(
    q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, page_table: Any, key_lengths: Sequence[int],
    options: Options, layout: str, descales: tuple[Any, Any] = (None, None),
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """out and lse, of q and pools in `layout`; as `tilescope.paged_attention`.

    The table is looked at on the host before anything is launched: one on a device is waited for.
    """
    if torch.is_grad_enabled() and (q.requires_grad or k_pages.requires_grad or v_pages.requires_grad):
        raise bad_input("page_table", "given", "has no backward pass: call it under torch.no_grad()")
    heads_kv = k_pages.shape[1 if layout == "bhnd" else 2] if k_pages.dim() == 4 else 0
    given = {name: _numbers(name, descale, (q.shape[0], heads_kv))
             for name, descale in zip(("descale_k", "descale_v"), descales) if descale is not None}  # fmt: skip
    problem, table = _checked(
        q, k_pages, v_pages, _on_host(page_table), _integers(key_lengths), causal=options.causal,
        window=(options.window_left, options.window_right), scale=options.scale, layout=layout,
        **dict.fromkeys(given, "given"),
    )  # fmt: skip
    if layout == "bnhd":
        q, k_pages, v_pages = (tensor.transpose(1, 2) for tensor in (q, k_pages, v_pages))
    if problem.head_dim_v != problem.head_dim:
        raise bad_input("v_pages", tuple(v_pages.shape), "must have the columns of k_pages: operators know no others")
    out, lse = launches.out_like(q, q.shape[-1]), launches.lse_of(q, True)
    tile = (options.block_m, options.block_n) if options.block_m else None
    if q.is_cuda:
        _launch(problem, table, q, k_pages, v_pages, out, lse, options, given)
    else:
        _native.attention_forward(
            problem._handle, kernel_use(options.kernel or None, tile, None),
            *(launches.place_of(tensor) for tensor in (q, k_pages, v_pages, out, lse)),
            (NOWHERE, *(launches.place_of(given[name][:, :, None, None]) if name in given else NOWHERE
                         for name in ("descale_k", "descale_v"))),
            pages=_pages_of(table, k_pages.shape[0]),
        )  # fmt: skip
    return out.transpose(1, 2) if layout == "bnhd" else out, lse


def _numbers(name: str, descale: Any, shape: tuple[int, int]) -> torch.Tensor:
    """A number of each sequence and key head, in host memory."""
    numbers = torch.as_tensor(descale, dtype=torch.float32).cpu()
    if numbers.dim() != 0 and tuple(numbers.shape) != shape:
        raise bad_input(name, f"a tensor of shape {tuple(numbers.shape)}", f"must be a number or have the shape {shape}")
    least, most = _native.descale_range()
    if not bool(((numbers >= least) & (numbers <= most)).all()):
        raise bad_input(name, numbers.flatten()[0].item(), f"must lie in {least:g} ... {most:g}")
    return numbers.expand(shape).contiguous()


def _on_host(page_table: Any) -> Any:
    return page_table.cpu() if isinstance(page_table, torch.Tensor) else page_table


def _integers(key_lengths: Any) -> Any:
    return key_lengths.tolist() if isinstance(key_lengths, torch.Tensor) else key_lengths


def _launch(problem, table, q, k_pages, v_pages, out, lse, options, descales):
    """Enqueues the passes on torch's current stream of q's device; pools are read in place."""
    with torch.cuda.device(q.device):
        q = launches.fitting(q)
        for name, pool in (("k_pages", k_pages), ("v_pages", v_pages)):
            if launches.fitting(pool) is not pool:
                raise bad_input(name, f"strides {pool.stride()}", "must let rows begin at 16 bytes, columns side by side")
        use = launches.chosen_kernel(problem._handle, options._replace(backward=""), q.device, False)
        tensors = {"q": q, "k": k_pages, "v": v_pages, "out": out, "lse": lse}
        given = [(name, tensor.stride()[:3]) for name, tensor in tensors.items()]
        whole = -(-table.shape[1] // _ENTRIES_A_SECTOR) * _ENTRIES_A_SECTOR
        launch = _native.DeviceLaunch(problem._handle, use, False, given, page_table_row=whole)
        made = [torch.empty(shape, dtype=launches.TYPES_OF_WORKSPACES[dtype], device=q.device)
                for shape, dtype in launch.workspaces()]
        padded = torch.nn.functional.pad(torch.from_numpy(table), (0, whole - table.shape[1]))
        tables = [padded.to(q.device)]
        if problem.key_lengths:
            tables.append(torch.tensor(problem.key_lengths, dtype=torch.int32, device=q.device))
        tables += [descales[name].to(q.device) for name in ("descale_k", "descale_v") if name in descales]
        launch.enqueue(
            torch._C._cuda_getCurrentRawStream(q.device.index),
            [tensor.data_ptr() for tensor in (*tensors.values(), *made, *tables)], 0, 0,
        )  # fmt: skip
