# SPDX-License-Identifier: Apache-2.0
"""Attention on a sequence that the ranks of a torch process group share: a zigzag ring, forward and backward.

Each rank owns two chunks of the sequence, one from the front and one from the back, so that a causal mask leaves all
of them the same work; K and V go round while the ranks compute, and backward the sums of dK and dV follow them in
float32. A rank sends (P - 1) s bytes forward and (3 P - 1) s backward, s being its K and V in 16 bits, as
`tilescope simulate --gpus P --schedule zigzag` says.

    shards = [shard_sequence(x) for x in (q, k, v)]
    out = unshard_sequence(context_parallel_attention(*shards, causal=True))
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ..errors import bad_input
from . import _require_problem, _require_tensors, launches
from .launches import Options

__all__ = ["context_parallel_attention", "shard_sequence", "unshard_sequence"]


def _chunks_of(rank: int, ranks: int) -> tuple[int, int]:
    return rank, 2 * ranks - 1 - rank


def shard_sequence(tensor: torch.Tensor, dim: int = 2, group: Any = None) -> torch.Tensor:
    """This rank's rows of a tensor that every rank has whole; of (B, H, N, D) those of dimension 2."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if tensor.shape[dim] % (2 * ranks):
        raise bad_input("sequence", tensor.shape[dim], f"must be a multiple of {2 * ranks}: two chunks for each rank")
    chunks = tensor.chunk(2 * ranks, dim)
    return torch.cat([chunks[i] for i in _chunks_of(rank, ranks)], dim)


def unshard_sequence(tensor: torch.Tensor, dim: int = 2, group: Any = None) -> torch.Tensor:
    """The whole tensor on every rank, from the rows of each. Carries no gradient."""
    ranks = dist.get_world_size(group)
    shards = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(ranks)]
    dist.all_gather(shards, tensor.detach().contiguous(), group=group)
    chunks: list[Any] = [None] * (2 * ranks)
    for rank, shard in enumerate(shards):
        for i, chunk in zip(_chunks_of(rank, ranks), shard.chunk(2, dim)):
            chunks[i] = chunk
    return torch.cat(chunks, dim)


class _Hop:
    """Tensors on their way to the next rank, and those of the rank before on their way here."""

    def __init__(self, tensors: list[torch.Tensor], group: Any):
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        to, source = (dist.get_global_rank(group or dist.group.WORLD, r % ranks) for r in (rank + 1, rank - 1))
        self._sent = tensors  # lives until it has gone
        self._received = [torch.empty_like(tensor) for tensor in tensors]
        operations = [dist.P2POp(dist.isend, tensor, to, group) for tensor in tensors]
        operations += [dist.P2POp(dist.irecv, tensor, source, group) for tensor in self._received]
        self._requests = dist.batch_isend_irecv(operations)

    def arrived(self) -> list[torch.Tensor]:
        for request in self._requests:
            request.wait()
        return self._received


def _visible(rank: int, step: int, rows: int, causal: bool) -> tuple[slice, slice, bool]:
    """Of the shard that visits in a step: which query rows see which of its rows, and whether through the mask."""
    everything, half = slice(None), rows // 2
    if step == 0 or not causal:
        return everything, everything, causal
    if step <= rank:  # of a rank before: its front chunk, and of its back chunk nothing
        return everything, slice(0, half), False
    return slice(half, None), everything, False


def _merge(out: torch.Tensor, lse: torch.Tensor, part: torch.Tensor, part_lse: torch.Tensor) -> None:
    """Attention over more keys into `out` and `lse` (float32): no exponential overflows, none of nothing is taken."""
    together = torch.logaddexp(lse, part_lse)
    out.lerp_(part.float(), torch.exp(part_lse - together).unsqueeze(-1))
    lse.copy_(together)


class _ZigzagRing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, options: Options, group: Any) -> Any:
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        keys = [k.contiguous(), v.contiguous()]
        for step in range(ranks):
            hop = _Hop(keys, group) if step + 1 < ranks else None
            rows, columns, masked = _visible(rank, step, q.shape[2], options.causal)
            part, part_lse = launches.forward(
                q[:, :, rows], *(x[:, :, columns] for x in keys), None, options._replace(causal=masked), True
            )
            if step == 0:
                out, lse = part.float(), part_lse
            else:
                _merge(out[:, :, rows], lse[:, :, rows], part, part_lse)
            if hop:
                keys = hop.arrived()
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.options, ctx.group = options, group
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: Any) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        group = ctx.group
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
        keys, sums_hop = [k.contiguous(), v.contiguous()], None
        for step in range(ranks):
            hop = _Hop(keys, group) if step + 1 < ranks else None
            rows, columns, masked = _visible(rank, step, q.shape[2], ctx.options.causal)
            part_dq, *parts = launches.backward(
                dout[:, :, rows], q[:, :, rows], *(x[:, :, columns] for x in keys), out[:, :, rows],
                lse[:, :, rows].contiguous(), None, ctx.options._replace(causal=masked),
            )  # fmt: skip
            dq[:, :, rows] += part_dq.float()
            if sums_hop is None:
                sums = [part.float() for part in parts]
            else:
                sums = sums_hop.arrived()
                for total, part in zip(sums, parts):
                    total[:, :, columns] += part.float()
            if ranks > 1:
                sums_hop = _Hop(sums, group)
            if hop:
                keys = hop.arrived()
        if sums_hop is not None:
            sums = sums_hop.arrived()
        return dq.to(q.dtype), *(total.to(k.dtype) for total in sums), None, None


def context_parallel_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    kernel: str | None = None,
    group: Any = None,
) -> torch.Tensor:
    """Softmax attention of a whole sequence, from this rank's shards q (B, H, n, D), k and v (B, Hkv, n, D).

    It has gradients. Every rank of `group` (default: all) calls it, with shards as `shard_sequence` makes them. Returns this rank's rows.
    """
    _require_tensors(q, k, v)
    if q.shape[2] != k.shape[2]:
        raise bad_input("k", f"{k.shape[2]} rows", f"must have as many as q: {q.shape[2]}")
    if q.shape[2] % 2:
        raise bad_input("q", f"{q.shape[2]} rows", "must be even: two chunks of the sequence")
    if v.shape[-1] != k.shape[-1]:
        raise bad_input("v", f"{v.shape[-1]} columns", f"must have as many as k on several devices: {k.shape[-1]}")
    _require_problem(q, k, v, "bhnd", causal, (-1, -1), scale, 0.0)
    return _ZigzagRing.apply(q, k, v, Options.of(q, causal=causal, scale=scale, kernel=kernel), group)
