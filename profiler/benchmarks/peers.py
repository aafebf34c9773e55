# SPDX-License-Identifier: Apache-2.0
"""Times other libraries' attention kernels for `tilescope bench --peers`.

Says on the first line of its standard output what it can time; then each line of JSON on its standard input
is a problem and a peer, and is answered by a line with samples, or with what the peer lacks. Samples are
taken as profiler/timing/cold_timer.hpp does: CUDA events round work that is enqueued while the device is still busy
with a eviction sweep that empties L2. $TILESCOPE_PEERS names those that are wanted, with commas; default all.
A peer that knows no pages is timed on keys and values that lie one after the other, which takes it no longer.
"""

import contextlib
import json
import math
import os
import signal
import statistics
import sys


def without(package):
    return {"lacks": f"python3 has no {package}; a Python environment with PyTorch for CUDA would bring it"}


signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the program's, whose end is this one's
# The libraries' own messages must not come between the answers.
ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def answer(reply):
    ANSWERS.write(json.dumps(reply) + "\n")
    ANSWERS.flush()


try:
    import torch
except ImportError:
    answer(without("torch"))
    sys.exit(0)
from cold_sampler import ColdSampler
from torch_peers import Flash2Peer, MathPeer, SDPBackend, SdpaPeer, TritonPeer, plain_triton

try:
    from flex_peer import FlexPeer
except ImportError:
    FlexPeer = None  # a PyTorch without it
try:
    import flashinfer_peer

    flashinfer_lack = None
except Exception as error:  # as FlashAttention-4's
    flashinfer_peer = None
    absent = isinstance(error, ModuleNotFoundError) and error.name == "flashinfer"
    flashinfer_lack = None if absent else f"FlashInfer not timed, as it does not load: {error}"
try:
    import cudnn_fp8_peer
except ImportError:
    cudnn_fp8_peer = None  # its front end is a package of its own, nvidia-cudnn-frontend
try:
    import importlib.metadata

    from flash_attn.cute import flash_attn_func as flash4_func

    flash4_lack = None
except Exception as error:  # its packages compile as they are loaded, and fail in ways of their own
    flash4_func = None
    absent = isinstance(error, ModuleNotFoundError) and error.name.startswith("flash_attn")
    flash4_lack = None if absent else f"FlashAttention-4 not timed, as it does not load: {error}"


def wants(request):
    """What a request has that a peer must be made for, in words."""
    asked = {"lengths of batch entries": request["key_lengths"], "masks": request["mask"],
             "score modifiers": request["score_mods"], "keys in fp8": request["kv_dtype"] != request["dtype"],
             "values of other columns than keys": request["head_dim_v"] != request["head_dim"]}
    return [name for name, given in asked.items() if given]


class Flash4Peer:
    """FlashAttention-4, whose tensors are laid out (batch, rows, heads, head_dim)."""

    takes = ("values of other columns than keys",)

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
    if FlexPeer:
        peers["pytorch:flex"] = FlexPeer()
    if flashinfer_peer:
        peers["flashinfer:decode"] = flashinfer_peer.DecodePeer()
    if cudnn_fp8_peer:
        peers["cudnn:fp8"] = cudnn_fp8_peer.Fp8Peer(torch.float8_e4m3fn)
        peers["cudnn:fp8-o-fp16"] = cudnn_fp8_peer.Fp8Peer(torch.float16)
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
    if flashinfer_peer:
        text += f", FlashInfer {flashinfer_peer.version()}"
    elif flashinfer_lack:
        text += f", {flashinfer_lack}"
    if cudnn_fp8_peer:
        text += f", {cudnn_fp8_peer.version()}"
    return text + (f", Triton {plain_triton.version()}" if plain_triton else "")


def make_tensors(request):
    """q, k, v, dout: (B, heads, rows, columns), N(0, 1)."""
    torch.manual_seed(request["seed"])
    batch, heads, heads_kv, rows, keys, head_dim, value_dim = (
        request[key] for key in ("batch", "heads", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v"))
    of_queries, of_keys = (batch, heads, rows, head_dim), (batch, heads_kv, keys, head_dim)
    of_values, of_outputs = (batch, heads_kv, keys, value_dim), (batch, heads, rows, value_dim)
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
             "fp8e4m3": torch.float8_e4m3fn}.get(request["dtype"])
    if dtype is None:
        raise RuntimeError(f"element type {request['dtype']}")
    drawn_as = torch.float16 if dtype == torch.float8_e4m3fn else dtype
    tensors = [torch.randn(shape, device="cuda", dtype=drawn_as).to(dtype)
               for shape in (of_queries, of_keys, of_values, of_outputs)]
    if dtype == drawn_as:  # there is no backward pass in fp8
        for tensor in tensors[:3]:
            tensor.requires_grad_(True)
    return tensors


PROBLEM_KEYS = ("batch", "heads", "heads_kv", "seqlen_q", "seqlen_k", "key_lengths", "page_size", "window", "mask",
                "score_mods", "head_dim", "head_dim_v", "dtype", "kv_dtype", "causal", "scale", "seed", "direction")


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
        lacking = [name for name in wants(request) if name not in peer.takes]
        if lacking:
            return {"lacks": " and ".join(lacking)}
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
