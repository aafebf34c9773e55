# SPDX-License-Identifier: Apache-2.0
"""Times what others share between GPUs: PyTorch's context parallel, and a zigzag ring in Python as users write it
(its own merge in fp32, PyTorch's flash attention for the launches), beside the same kernel on one GPU with the whole
problem; and tilescope.torch's ring, where the package is. One process a GPU:

    torchrun --nproc-per-node 2 python/distributed_peers.py --heads 32/8 16/16 --tokens 2048 8192 --json gqa.json mha.json
"""

import argparse
import contextlib
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

WARM_UPS, ROUNDS = 2, 6


def timed(work):
    """Seconds of one round on the slowest rank."""
    for _ in range(WARM_UPS):
        work()
    dist.barrier()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(ROUNDS):
        work()
    end.record()
    end.synchronize()
    seconds = torch.tensor([begin.elapsed_time(end) * 1e-3 / ROUNDS], device="cuda")
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item()


class LinkCounter:
    """Bytes of user data that the links of this process's GPU have carried, as NVML counts them."""

    SENT, RECEIVED, ALL_LINKS, UNIT = 138, 139, 0xFFFFFFFF, 1024
    UNTIL_NVML_KNOWS, REPETITIONS = 0.15, 8

    def __init__(self):
        import pynvml

        pynvml.nvmlInit()
        self.nvml = pynvml
        self.device = pynvml.nvmlDeviceGetHandleByUUID("GPU-" + str(torch.cuda.get_device_properties().uuid))

    def read(self):
        torch.cuda.synchronize()
        dist.barrier()
        time.sleep(self.UNTIL_NVML_KNOWS)
        fields = [(self.SENT, self.ALL_LINKS), (self.RECEIVED, self.ALL_LINKS)]
        values = self.nvml.nvmlDeviceGetFieldValues(self.device, fields)
        return [value.value.ullVal * self.UNIT for value in values]

    def count(self, work):
        """[sent, received] of one round."""
        before = self.read()
        for _ in range(self.REPETITIONS):
            work()
        return [(after - b) / self.REPETITIONS for after, b in zip(self.read(), before)]


def counted(work, name):
    """What one round moves over the links of the GPU that sends most; nothing where NVML does not say."""
    try:
        sent = torch.tensor(LinkCounter().count(work), device="cuda", dtype=torch.float64)
    except Exception:
        return {}
    dist.all_reduce(sent, op=dist.ReduceOp.MAX)
    return {f"{name}_link_sent_bytes": sent[0].item(), f"{name}_link_received_bytes": sent[1].item()}


def forward_backward_times(make_output, inputs, links=False):
    """Forward, and backward as the difference of both and forward; their bytes over the links likewise."""
    dout = torch.randn_like(make_output())

    def both():
        for x in inputs:
            x.grad = None
        make_output().backward(dout)

    with torch.no_grad():
        forward = timed(make_output)
        result = {"forward_s": forward} | (counted(make_output, "forward") if links else {})
    result["backward_s"] = timed(both) - forward
    if links:
        for name, value in counted(both, "backward").items():
            result[name] = value - result[name.replace("backward", "forward")]
    return result


def flash_forward(q, k, v, causal):
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)


def flash_backward(dout, q, k, v, out, lse, causal, state):
    lengths = (q.shape[2], k.shape[2])
    return torch.ops.aten._scaled_dot_product_flash_attention_backward(
        dout, q, k, v, out, lse, None, None, *lengths, 0.0, causal, *state)


class ZigzagRing(torch.autograd.Function):
    """Each rank owns chunks r and 2P-1-r; K and V rotate, backward dK and dV in fp32 one step behind."""

    @staticmethod
    def rotate(tensors):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        received = [torch.empty_like(t) for t in tensors]
        operations = []
        for mine, theirs in zip(tensors, received):
            operations.append(dist.P2POp(dist.isend, mine, (rank + 1) % ranks))
            operations.append(dist.P2POp(dist.irecv, theirs, (rank - 1) % ranks))
        return received, dist.batch_isend_irecv(operations)

    @staticmethod
    def views(q, k, step):
        """Of a step: query rows, key rows, and whether the mask is causal."""
        half, keys = q.shape[2] // 2, k.shape[2] // 2
        if step == 0:
            return slice(None), slice(None), True
        if step <= dist.get_rank():
            return slice(None), slice(0, keys), False
        return slice(half, None), slice(None), False

    @staticmethod
    def forward(context, q, k, v):
        ranks = dist.get_world_size()
        out = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
        lse = torch.full((*q.shape[:3], 1), -torch.inf, device=q.device)
        keys, values, state = k, v, None
        for step in range(ranks):
            if step + 1 < ranks:
                (next_keys, next_values), requests = ZigzagRing.rotate([keys, values])
            rows, columns, causal = ZigzagRing.views(q, keys, step)
            part, part_lse, *rest = flash_forward(
                q[:, :, rows].contiguous(), keys[:, :, columns].contiguous(), values[:, :, columns].contiguous(), causal)
            state = rest[4:6]
            part_lse = part_lse.unsqueeze(-1)
            old_out, old_lse = out[:, :, rows], lse[:, :, rows]
            out[:, :, rows] = old_out - torch.sigmoid(part_lse - old_lse) * (old_out - part.float())
            lse[:, :, rows] = torch.logaddexp(old_lse, part_lse)
            if step + 1 < ranks:
                for request in requests:
                    request.wait()
                keys, values = next_keys, next_values
        out = out.to(q.dtype)
        context.save_for_backward(q, k, v, out, lse)
        context.state = state
        return out

    @staticmethod
    def backward(context, dout):
        q, k, v, out, lse = context.saved_tensors
        ranks = dist.get_world_size()
        dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
        keys, values, sums = k, v, None
        for step in range(ranks):
            if step + 1 < ranks:
                (next_keys, next_values), requests = ZigzagRing.rotate([keys, values])
            rows, columns, causal = ZigzagRing.views(q, keys, step)
            parts = [x[:, :, rows].contiguous() for x in (dout, q)]
            part_dq, part_dk, part_dv = flash_backward(
                *parts, keys[:, :, columns].contiguous(), values[:, :, columns].contiguous(),
                out[:, :, rows].contiguous(), lse[:, :, rows].squeeze(-1).contiguous(), causal, context.state)
            dq[:, :, rows] += part_dq.float()
            if step == 0:
                sums = [part_dk.float(), part_dv.float()]
            else:
                for request in sum_requests:
                    request.wait()
                sums = arriving
                sums[0][:, :, columns] += part_dk.float()
                sums[1][:, :, columns] += part_dv.float()
            if step + 1 < ranks:
                for request in requests:
                    request.wait()
                keys, values = next_keys, next_values
            arriving, sum_requests = ZigzagRing.rotate(sums)
        for request in sum_requests:
            request.wait()
        return dq.to(q.dtype), arriving[0].to(k.dtype), arriving[1].to(v.dtype)


def tensors(arguments, tokens):
    torch.manual_seed(1)
    shape = lambda heads: (1, heads, tokens, arguments.head_dim)
    make = lambda heads: torch.randn(shape(heads), device="cuda", dtype=torch.bfloat16, requires_grad=True)
    return make(arguments.heads), make(arguments.heads_kv), make(arguments.heads_kv)


def counts_links(arguments, tokens):
    """Bytes grow with the tokens, and NVML is slow: they are counted once."""
    return tokens == max(arguments.tokens)


def one_gpu(arguments, tokens, backend):
    q, k, v = tensors(arguments, tokens * dist.get_world_size())
    if backend == TILESCOPE:
        from tilescope.torch import attention

        return forward_backward_times(lambda: attention(q, k, v, causal=True), (q, k, v))
    with sdpa_kernel(backend):
        return forward_backward_times(
            lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), (q, k, v))


def context_parallel_times(arguments, tokens, backend):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel

    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    q, k, v = (x.detach() for x in tensors(arguments, tokens * dist.get_world_size()))
    with context_parallel(mesh, buffers=(q, k, v), buffer_seq_dims=(2, 2, 2)), sdpa_kernel(backend):
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))  # the same memory, of this rank's tokens
        return forward_backward_times(
            lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), (q, k, v),
            links=counts_links(arguments, tokens))


def ring_times(arguments, tokens, backend):
    q, k, v = tensors(arguments, tokens)
    return forward_backward_times(
        lambda: ZigzagRing.apply(q, k, v), (q, k, v), links=counts_links(arguments, tokens))


def tilescope_times(arguments, tokens, backend):
    from tilescope.torch.context_parallel import context_parallel_attention

    q, k, v = tensors(arguments, tokens)
    return forward_backward_times(
        lambda: context_parallel_attention(q, k, v, causal=True), (q, k, v), links=counts_links(arguments, tokens))


TILESCOPE = "tilescope"
PEERS = {
    "tilescope.torch context parallel": (tilescope_times, TILESCOPE),
    "zigzag ring in Python": (ring_times, SDPBackend.FLASH_ATTENTION),
    "PyTorch context parallel, flash": (context_parallel_times, SDPBackend.FLASH_ATTENTION),
    "PyTorch context parallel, cuDNN": (context_parallel_times, SDPBackend.CUDNN_ATTENTION),
}


def measure_all(arguments):
    """The record of one shape."""
    record = {"schema": "tilescope.distributed-peers/1", "torch": torch.__version__, "nccl": ".".join(map(str, torch.cuda.nccl.version())), "gpus": dist.get_world_size(),
              "problem": {"heads": arguments.heads, "heads_kv": arguments.heads_kv, "head_dim": arguments.head_dim,
                          "dtype": "bf16", "causal": True}, "runs": []}
    for tokens in arguments.tokens:
        alone = {}
        for name, (measure, backend) in PEERS.items():
            run = {"peer": name, "tokens_a_gpu": tokens}
            try:
                if backend not in alone:
                    alone[backend] = one_gpu(arguments, tokens, backend)
                run["one_gpu"] = alone[backend]
                run.update(measure(arguments, tokens, backend))
                for which in ("forward_s", "backward_s"):
                    run[which.replace("_s", "_efficiency")] = alone[backend][which] / (dist.get_world_size() * run[which])
            except Exception as error:  # what a peer refuses is part of the comparison
                run["refused"] = f"{type(error).__name__}: {str(error)[:300]}"
            record["runs"].append(run)
            torch.cuda.empty_cache()
    return record


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--heads", nargs="+", default=["32/8"], help="of Q / of K and V")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 4096, 8192, 16384], help="of each GPU")
    parser.add_argument("--json", nargs="+", default=["-"], help="a file for each of --heads, or - for standard output")
    arguments = parser.parse_args()
    shapes = arguments.heads
    if len(arguments.json) != len(shapes):
        parser.error("--json must name as many files as --heads has shapes")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    for shape, file in zip(shapes, arguments.json):
        arguments.heads, arguments.heads_kv = map(int, shape.split("/"))
        text = json.dumps(measure_all(arguments), indent=1)
        if dist.get_rank() == 0:
            with contextlib.ExitStack() as stack:
                print(text, file=None if file == "-" else stack.enter_context(open(file, "w")))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
