# SPDX-License-Identifier: Apache-2.0
"""Times other libraries' attention kernels for `tilescope bench --peers`.

Says on the first line of its standard output what it can time; then each line of JSON on its standard input
is a problem and a peer, and is answered by a line with samples, or with what the peer lacks. Samples are
taken as profiler/timing/cold_timer.hpp does: CUDA events round work that is enqueued while the device is still busy
with a eviction sweep that empties L2. $TILESCOPE_PEERS names those that are wanted, with commas; default all.
"""

import contextlib
import json
import math
import os
import statistics
import sys
import time


def without(package):
    return {"lacks": f"python3 has no {package}; a Python environment with PyTorch for CUDA would bring it"}


# The libraries' own messages must not come between the answers.
ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def answer(reply):
    ANSWERS.write(json.dumps(reply) + "\n")
    ANSWERS.flush()


try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    answer(without("torch"))
    sys.exit(0)
try:
    import plain_triton
except ImportError:
    plain_triton = None  # no Triton: its peer is left out

try:
    import importlib.metadata

    from flash_attn.cute import flash_attn_func as flash4_func

    flash4_lack = None
except Exception as error:  # its packages compile as they are loaded, and fail in ways of their own
    flash4_func = None
    absent = isinstance(error, ModuleNotFoundError) and error.name.startswith("flash_attn")
    flash4_lack = None if absent else f"FlashAttention-4 not timed, as it does not load: {error}"


class ColdSampler:
    """Samples of work that begins with an L2 that holds none of its lines."""

    L2_MULTIPLES = 4
    # While the device spins the host enqueues the rest, so that no launch latency comes between the events. As long in
    # all as our own kernels rest before a sample: rest_s of device_benchmarks.hpp.
    SPIN_CYCLES = 500_000

    def __init__(self):
        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self.buffer = torch.zeros(self.L2_MULTIPLES * l2_bytes // 4, device="cuda")
        self.total = torch.zeros((), device="cuda")
        self.begin = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)
        self.spun = torch.cuda.Event(enable_timing=True)
        self.clocks_hz = []  # of the SMs, right after each sample

    def sample(self, work):
        torch.sum(self.buffer, dim=0, out=self.total)
        torch.cuda._sleep(self.SPIN_CYCLES)
        self.begin.record()
        work()
        self.end.record()
        torch.cuda._sleep(self.SPIN_CYCLES)
        self.spun.record()
        self.spun.synchronize()
        self.clocks_hz.append(self.SPIN_CYCLES / (1e-3 * self.end.elapsed_time(self.spun)))
        return 1e-3 * self.begin.elapsed_time(self.end)

    def samples(self, work, rule):
        for _ in range(rule["warm_up"]):
            work()
        torch.cuda.synchronize()
        began = time.monotonic()
        samples = []
        self.clocks_hz.clear()
        while len(samples) < rule["max_samples"]:
            if samples and time.monotonic() - began >= rule["time_limit_s"]:
                break
            samples.append(self.sample(work))
            if len(samples) < rule["min_samples"] or sum(samples) < rule["min_time_s"]:
                continue
            if statistics.stdev(samples) / statistics.mean(samples) <= rule["max_noise"]:
                break
        return samples


def windowed(request):
    return max(request["window"]) >= 0


def is_square(request):
    return request["seqlen_q"] == request["seqlen_k"]


class SdpaPeer:
    """One back end of scaled_dot_product_attention."""

    takes_lengths = False  # of batch entries, whose other keys are padding

    def __init__(self, backend):
        self.backend = backend

    def work(self, tensors, request):
        # Its causal mask begins at the first key, ours ends at the last.
        if windowed(request) or (request["causal"] and not is_square(request)):
            raise RuntimeError("another mask than this back end takes")
        q, k, v, dout = tensors

        def forward():
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=request["causal"], scale=request["scale"],
                enable_gqa=request["heads"] != request["heads_kv"])

        if request["direction"] == "forward":
            return forward
        out = forward()
        return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)

    def context(self):
        return sdpa_kernel(self.backend)


class Flash2Peer(SdpaPeer):
    """FlashAttention-2, by its operators where scaled_dot_product_attention has no word for mask or lengths."""

    takes_lengths = True

    def __init__(self):
        super().__init__(SDPBackend.FLASH_ATTENTION)

    def work(self, tensors, request):
        if request["key_lengths"]:
            return self.packed_work(tensors, request)
        if not windowed(request) and (is_square(request) or not request["causal"]):
            return super().work(tensors, request)
        q, k, v, dout = (tensor.detach().transpose(1, 2).contiguous() for tensor in tensors)
        left, right = (None if side < 0 else side for side in request["window"])
        if request["causal"]:
            right = 0
        mask = {"scale": request["scale"], "window_size_left": left, "window_size_right": right}
        lengths = (None, None, request["seqlen_q"], request["seqlen_k"], 0.0, right == 0 and left is None)

        def forward():
            return torch.ops.aten._flash_attention_forward(q, k, v, *lengths, False, **mask)

        if request["direction"] == "forward":
            forward()
            return forward
        out, lse, rng_state, unused, _ = forward()
        return lambda: torch.ops.aten._flash_attention_backward(dout, q, k, v, out, lse, *lengths, rng_state, unused,
                                                                **mask)


    def packed_work(self, tensors, request):
        """Keys of batch entries one after the other, without the padding behind them."""
        if request["direction"] != "forward" or windowed(request):
            raise RuntimeError("lengths are timed forward alone, without windows")
        lengths, rows = request["key_lengths"], request["seqlen_q"]
        q, k, v = (tensor.detach().transpose(1, 2) for tensor in tensors[:3])
        q = q.reshape(-1, *q.shape[2:])
        k, v = (torch.cat([entry[:length] for entry, length in zip(each, lengths)]) for each in (k, v))

        def ends(counts):
            return torch.tensor([0, *counts], device="cuda").cumsum(0).to(torch.int32)

        packed = (ends([rows] * len(lengths)), ends(lengths), rows, max(lengths), 0.0, request["causal"], False)
        return lambda: torch.ops.aten._flash_attention_forward(q, k, v, *packed, scale=request["scale"])


class MathPeer(SdpaPeer):
    """The untiled back end, where its N x N matrices fit."""

    MOST_BYTES = 48 << 30
    MATRICES = 6  # live at a time in backward, some of them in fp32

    def __init__(self):
        super().__init__(SDPBackend.MATH)

    def work(self, tensors, request):
        entries = request["batch"] * request["heads"] * request["seqlen_q"] * request["seqlen_k"]
        if self.MATRICES * 4 * entries > self.MOST_BYTES:
            raise RuntimeError("its N x N matrices are too large")
        return super().work(tensors, request)


class TritonPeer:
    """Our own kernels, so they are checked against PyTorch's before they are timed."""

    MOST_ERROR = 0.02  # of the largest value
    takes_lengths = False

    def __init__(self, tuned):
        self.tuned = tuned

    def work(self, tensors, request):
        if windowed(request) or not is_square(request) or request["heads"] != request["heads_kv"]:
            raise RuntimeError("its kernels have one length, as many key as query heads and no window")
        q, k, v, dout = (tensor.detach() for tensor in tensors)
        attention = plain_triton.Attention(q, k, v, dout, request["causal"], request["scale"], self.tuned)
        attention.forward()
        reference = torch.nn.functional.scaled_dot_product_attention(*tensors[:3], is_causal=request["causal"],
                                                                     scale=request["scale"])
        self.require_equal([attention.out], [reference])
        if request["direction"] == "forward":
            return attention.forward
        attention.backward()
        self.require_equal([attention.dq, attention.dk, attention.dv],
                           torch.autograd.grad(reference, tensors[:3], dout))
        return attention.backward

    def require_equal(self, results, references):
        for result, reference in zip(results, references):
            error = ((result - reference).abs().max() / reference.abs().max()).item()
            if not error <= self.MOST_ERROR:
                raise RuntimeError(f"wrong by {error:.3g} of the largest value")

    def context(self):
        return contextlib.nullcontext()


class Flash4Peer:
    """FlashAttention-4, whose tensors are laid out (batch, rows, heads, head_dim)."""

    takes_lengths = False

    def work(self, tensors, request):
        q, k, v, dout = (tensor.detach().transpose(1, 2).contiguous() for tensor in tensors)
        for tensor in (q, k, v):
            tensor.requires_grad_(True)

        sides = tuple(None if side < 0 else side for side in request["window"])

        def forward():
            out = flash4_func(q, k, v, causal=request["causal"], softmax_scale=request["scale"], window_size=sides)
            return out[0] if isinstance(out, tuple) else out

        try:  # compiles for this problem
            out = forward()
            if request["direction"] == "forward":
                return forward
            torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)
        except Exception as error:
            raise RuntimeError(f"flash-attn-4: {error}") from error
        return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)

    def context(self):
        return contextlib.nullcontext()


def find_peers():
    peers = {
        "pytorch:flash2": Flash2Peer(),
        "pytorch:cudnn": SdpaPeer(SDPBackend.CUDNN_ATTENTION),
        "pytorch:efficient": SdpaPeer(SDPBackend.EFFICIENT_ATTENTION),
        "pytorch:math": MathPeer(),
    }
    if flash4_func:
        peers["flash-attn:flash4"] = Flash4Peer()
    if plain_triton:
        peers["triton:plain"] = TritonPeer(tuned=False)
        peers["triton:tuned"] = TritonPeer(tuned=True)
    wanted = os.environ.get("TILESCOPE_PEERS")
    return {name: peer for name, peer in peers.items() if not wanted or name in wanted.split(",")}


def versions():
    text = f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
    if torch.backends.cudnn.is_available():
        number = torch.backends.cudnn.version()
        text += f", cuDNN {number // 10000}.{number // 100 % 100}.{number % 100}"
    if flash4_func:
        text += f", FlashAttention-4 {importlib.metadata.version('flash-attn-4')}"
    elif flash4_lack:
        text += f", {flash4_lack}"
    return text + (f", Triton {plain_triton.version()}" if plain_triton else "")


def make_tensors(request):
    """q, k, v, dout: (B, heads, rows, D), N(0, 1)."""
    torch.manual_seed(request["seed"])
    batch, heads, heads_kv, rows, keys, head_dim = (
        request[key] for key in ("batch", "heads", "heads_kv", "seqlen_q", "seqlen_k", "head_dim"))
    of_queries, of_keys = (batch, heads, rows, head_dim), (batch, heads_kv, keys, head_dim)
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}.get(request["dtype"])
    if dtype is None:
        raise RuntimeError(f"element type {request['dtype']}")
    tensors = [torch.randn(shape, device="cuda", dtype=dtype) for shape in (of_queries, of_keys, of_keys, of_queries)]
    for tensor in tensors[:3]:
        tensor.requires_grad_(True)
    return tensors


PROBLEM_KEYS = ("batch", "heads", "heads_kv", "seqlen_q", "seqlen_k", "key_lengths", "window", "head_dim", "dtype", "causal",
                "scale", "seed", "direction")


class Desk:
    """Keeps a problem's tensors and its peers' work until another problem comes."""

    def __init__(self):
        self.peers = find_peers()
        self.sampler = ColdSampler()
        self.problem, self.tensors, self.works = None, None, {}

    def take(self, request):
        problem = [request[key] for key in PROBLEM_KEYS]
        if problem == self.problem:
            return
        self.problem, self.tensors, self.works = None, None, {}
        torch.cuda.empty_cache()  # other processes share the device
        self.tensors = make_tensors(request)
        self.problem = problem

    def serve(self, request):
        peer = self.peers[request["peer"]]
        if request["key_lengths"] and not peer.takes_lengths:
            return {"lacks": "lengths of batch entries"}
        try:
            self.take(request)
            with peer.context():
                if request["peer"] not in self.works:
                    self.works[request["peer"]] = peer.work(self.tensors, request)
                samples = self.sampler.samples(self.works[request["peer"]], request)
                return {"samples_s": samples, "sm_clock_hz": statistics.median(self.sampler.clocks_hz)}
        except (RuntimeError, ValueError) as error:  # the back end refuses, or memory is out
            self.works.pop(request["peer"], None)
            torch.cuda.empty_cache()
            return {"lacks": str(error).splitlines()[0]}


def main():
    if not torch.cuda.is_available():
        answer({"lacks": "python3's torch sees no CUDA device"})
        return
    desk = Desk()
    answer({"peers": list(desk.peers), "versions": versions()})
    for line in sys.stdin:
        request = json.loads(line)
        reply = desk.serve(request)
        if "samples_s" in reply and not all(math.isfinite(s) and s > 0 for s in reply["samples_s"]):
            reply = {"lacks": "a time that is none"}
        answer(reply)


if __name__ == "__main__":
    main()
