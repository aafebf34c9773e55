# SPDX-License-Identifier: Apache-2.0
"""A sequence shared by the ranks of a process group (gloo, on CPU): the whole attention, and its gradients."""

import runpy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist
import torch.multiprocessing as mp
from tilescope.torch import attention
from tilescope.torch.context_parallel import context_parallel_attention, shard_sequence, unshard_sequence

pytestmark = pytest.mark.torch
RANKS = 3
EXAMPLE = Path(__file__).parents[3] / "examples/context_parallel.py"


def on_rank(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    for causal in (True, False):
        torch.manual_seed(1)
        n = 2 * RANKS * 11  # no multiple of any tile
        q, k, v, dout = (torch.randn(2, heads, n, 16) for heads in (4, 2, 2, 4))
        whole = [x.clone().requires_grad_() for x in (q, k, v)]
        expected = attention(*whole, causal=causal)
        expected.backward(dout)
        shards = [shard_sequence(x).requires_grad_() for x in (q, k, v)]
        out = context_parallel_attention(*shards, causal=causal)
        out.backward(shard_sequence(dout))
        results = [out, *(x.grad for x in shards)]
        for name, result, exact in zip(("out", "dq", "dk", "dv"), results, [expected, *(x.grad for x in whole)]):
            torch.testing.assert_close(unshard_sequence(result), exact, atol=2e-5, rtol=1e-4, msg=name)
        assert torch.equal(unshard_sequence(shards[0]), q)
    subgroup = dist.new_group([0, 2])
    if rank != 1:  # a group whose ranks are not those of the world
        q, k, v = (torch.randn(1, 2, 4 * 5, 16, generator=torch.Generator().manual_seed(i)) for i in range(3))
        shards = [shard_sequence(x, group=subgroup) for x in (q, k, v)]
        out = unshard_sequence(context_parallel_attention(*shards, causal=True, group=subgroup), group=subgroup)
        torch.testing.assert_close(out, attention(q, k, v, causal=True), atol=2e-5, rtol=1e-4)
    with pytest.raises(ValueError, match="multiple of 6"):
        shard_sequence(torch.zeros(1, 1, 7, 16))
    with pytest.raises(ValueError, match="even"):
        context_parallel_attention(*(torch.zeros(1, 1, 7, 16),) * 3)
    example = runpy.run_path(str(EXAMPLE))
    for name, (ours, usual) in example["share_a_sequence"]("cpu", torch.float32, tokens_a_rank=20).items():
        assert ours <= example["ALLOWED"] * usual, name
    dist.destroy_process_group()


def test_ranks_together_compute_the_whole_sequence(tmp_path):
    mp.spawn(on_rank, (tmp_path / "store",), nprocs=RANKS)
