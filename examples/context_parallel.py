#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sequence that the processes of torchrun share, forward and backward, held to attention by definition in fp64:

    torchrun --nproc-per-node 2 examples/context_parallel.py    # on GPUs over NCCL; where there are none, on CPUs
"""

import os
import sys

import torch
import torch.distributed as dist
from tilescope.torch.context_parallel import context_parallel_attention, shard_sequence, unshard_sequence

ALLOWED = 2  # times the largest error of standard attention in the same element type


def standard(q, k, v):
    """Causal attention that writes its scores."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


def results(attention, tensors, dout):
    tensors = [x.detach().clone().requires_grad_() for x in tensors]
    out = attention(*tensors)
    out.backward(dout)
    return [out.detach(), *(x.grad for x in tensors)]


def share_a_sequence(device, dtype, tokens_a_rank=750, heads=8, heads_kv=2, head_dim=128):
    """By name of a tensor: the ring's largest error, and what standard attention is off by."""
    torch.manual_seed(1)  # the same tensors everywhere; in training each rank has its rows alone
    tokens = tokens_a_rank * dist.get_world_size()
    make = lambda heads: torch.randn(1, heads, tokens, head_dim, device=device, dtype=dtype)
    whole, dout = (make(heads), make(heads_kv), make(heads_kv)), make(heads)

    shards = [shard_sequence(x) for x in whole]
    ring = results(lambda *x: context_parallel_attention(*x, causal=True), shards, shard_sequence(dout))

    exact = results(standard, [x.double() for x in whole], dout.double())
    usual = results(standard, whole, dout)
    error = lambda one, other: (one.double() - other).abs().max().item()
    return {
        name: (error(unshard_sequence(of_ring), of_exact), error(of_usual, of_exact))
        for name, of_ring, of_usual, of_exact in zip(("out", "dq", "dk", "dv"), ring, usual, exact)
    }


def main():
    on_gpus = torch.cuda.is_available()
    if on_gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpus else "gloo")
    errors = share_a_sequence("cuda" if on_gpus else "cpu", torch.bfloat16 if on_gpus else torch.float32)
    right = all(ours <= ALLOWED * usual for ours, usual in errors.values())
    if dist.get_rank() == 0:
        for name, (ours, usual) in errors.items():
            print(f"{name:>4}: off by {ours:.2e}, standard attention by {usual:.2e}")
        print(f"{dist.get_world_size()} processes: {'passed' if right else 'FAILED'}")
    dist.destroy_process_group()
    sys.exit(not right)


if __name__ == "__main__":
    main()
