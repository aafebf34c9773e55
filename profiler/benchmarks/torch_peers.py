# SPDX-License-Identifier: Apache-2.0
"""Peers that come with PyTorch: the back ends of scaled_dot_product_attention, and our own kernels in Triton."""

import contextlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

try:
    import plain_triton
except ImportError:
    plain_triton = None  # no Triton: its peer is left out


def windowed(request):
    return max(request["window"]) >= 0


def is_square(request):
    return request["seqlen_q"] == request["seqlen_k"]


class SdpaPeer:
    """One back end of scaled_dot_product_attention."""

    takes = ("values of other columns than keys",)  # of what wants() names

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

    takes = ("lengths of batch entries",)

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
    takes = ()

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
