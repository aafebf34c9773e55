# SPDX-License-Identifier: Apache-2.0
"""FlexAttention of PyTorch: masks and score modifiers as functions that torch.compile makes a kernel of."""

import contextlib

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

DEVICE = "cuda"


class FlexPeer:
    """A kernel for each problem, checked against PyTorch on its last rows before it is timed."""

    takes = ("masks", "score modifiers")
    MOST_ERROR = 0.02  # of the largest value
    CHECKED_ROWS = 64

    def work(self, tensors, request):
        if not request["mask"] and not request["score_mods"] and max(request["window"]) < 0:
            raise RuntimeError("it is timed where there is a window, a mask or a modifier")
        q, k, v, dout = tensors
        sees, modify, sinks = mask_of(request), modifier_of(request), sinks_of(request)
        blocks = sees and create_block_mask(sees, None, None, q.shape[2], k.shape[2], device=DEVICE)

        def attend(q, k, v):
            out = flex_attention(q, k, v, score_mod=modify, block_mask=blocks, scale=request["scale"],
                                 enable_gqa=request["heads"] != request["heads_kv"], return_lse=sinks is not None)
            if sinks is None:
                return out
            out, lse = out
            return out * torch.sigmoid(lse - sinks).unsqueeze(-1).to(out.dtype)

        torch._dynamo.reset()  # a kernel compiled for any mask would be a slower one
        compiled = torch.compile(attend, dynamic=False)
        backward = request["direction"] == "backward"
        try:
            with torch.set_grad_enabled(backward):
                out = compiled(*(tensor if backward else tensor.detach() for tensor in (q, k, v)))
        except Exception as error:
            raise RuntimeError(f"FlexAttention: {error}") from error
        self.require_right(out, tensors, request, sees, modify, sinks)
        if backward:
            return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)
        return lambda: compiled(*(tensor.detach() for tensor in (q, k, v)))

    def require_right(self, out, tensors, request, sees, modify, sinks):
        q, k, v = (tensor.detach() for tensor in tensors[:3])
        rows = torch.arange(q.shape[2], device=DEVICE)[-self.CHECKED_ROWS:]
        keys, group = torch.arange(k.shape[2], device=DEVICE), request["heads"] // request["heads_kv"]
        heads = torch.arange(request["heads"], device=DEVICE).view(-1, 1, 1)
        scores = q[0, :, rows].float() @ k[0].repeat_interleave(group, 0).float().transpose(1, 2) * request["scale"]
        if modify:
            scores = modify(scores, 0, heads, rows.view(-1, 1), keys)
        if sees:
            scores = scores.masked_fill(~sees(0, heads, rows.view(-1, 1), keys), float("-inf"))
        if sinks is not None:
            scores = torch.cat([scores, sinks.view(-1, 1, 1).expand(-1, len(rows), 1)], dim=2)
        probs = scores.softmax(2)[..., :k.shape[2]].nan_to_num()
        exact = probs @ v[0].repeat_interleave(group, 0).float()
        error = ((out[0, :, rows].detach().float() - exact).abs().max() / exact.abs().max()).item()
        if not error <= self.MOST_ERROR:
            raise RuntimeError(f"wrong by {error:.3g} of the largest value")

    def context(self):
        return contextlib.nullcontext()


def band_of(request):
    """What causal and window leave, or None for all; they end with the last key."""
    diagonal = request["seqlen_k"] - request["seqlen_q"]
    left, right = request["window"]
    if request["causal"]:
        right = 0 if right < 0 else min(right, 0)
    sides = []
    if right >= 0:
        sides.append(lambda b, h, i, j: j <= i + diagonal + right)
    if left >= 0:
        sides.append(lambda b, h, i, j: j >= i + diagonal - left)
    if not sides:
        return None
    return sides[0] if len(sides) == 1 else lambda b, h, i, j: sides[0](b, h, i, j) & sides[1](b, h, i, j)


def mask_of(request):
    """The mask as `tilescope list masks` defines it, or None for all."""
    band, mask = band_of(request), request["mask"]
    if not mask:
        return band
    numbers, kind = mask["numbers"], mask["kind"]
    first = numbers[0]
    late = band_of({**request, "window": [-1, request["window"][1]]})
    if kind == "prefix":
        return lambda b, h, i, j: band(b, h, i, j) | (j < first) if band else None
    if kind == "sink" and band:
        return lambda b, h, i, j: band(b, h, i, j) | ((j < first) & late(b, h, i, j) if late else (j < first))
    if kind == "documents":
        of_token = torch.repeat_interleave(torch.arange(len(numbers)), torch.tensor(numbers)).to(DEVICE)
        same = lambda b, h, i, j: of_token[i] == of_token[j]  # noqa: E731
        return (lambda b, h, i, j: same(b, h, i, j) & band(b, h, i, j)) if band else same
    if kind == "blocks":
        lists = listed_blocks(numbers, request["seqlen_q"], request["seqlen_k"])
        listed = lambda b, h, i, j: lists[i // first, j // first]  # noqa: E731
        return (lambda b, h, i, j: listed(b, h, i, j) & band(b, h, i, j)) if band else listed
    if kind == "block-causal" and not band:
        diagonal = request["seqlen_k"] - request["seqlen_q"]
        return lambda b, h, i, j: (j // first) <= ((i + diagonal) // first)
    raise RuntimeError(f"mask {kind}")


def listed_blocks(numbers, rows, keys):
    """Whether a block of queries sees one of keys, (blocks of queries, blocks of keys); -1 begins the next list."""
    at, table = -1, torch.zeros(-(-rows // numbers[0]), -(-keys // numbers[0]), dtype=torch.bool)
    for number in numbers[1:]:
        if number < 0:
            at += 1
        else:
            table[at, number] = True
    return table.to(DEVICE)


def modifier_of(request):
    """The score modifiers in their order, or None."""
    mods, heads = request["score_mods"], request["heads"]
    diagonal = request["seqlen_k"] - request["seqlen_q"]
    steps = []
    if "softcap" in mods:
        cap = mods["softcap"]
        steps.append(lambda s, h, i, j: cap * torch.tanh(s / cap))
    if "alibi" in mods:
        if heads & (heads - 1):
            raise RuntimeError("ALiBi is timed where the heads are a power of 2")
        slopes = torch.exp2(-8.0 * torch.arange(1, heads + 1, device=DEVICE) / heads)
        steps.append(lambda s, h, i, j: s - slopes[h] * (i + diagonal - j).abs())
    if "log_bias" in mods:
        weight = mods["log_bias"]
        steps.append(lambda s, h, i, j: s - weight * torch.log1p((i + diagonal - j).abs().float()))
    if not steps:
        return None

    def modify(score, b, h, i, j):
        for step in steps:
            score = step(score, h, i, j)
        return score

    return modify


def sinks_of(request):
    """A learned sink a head, (heads, 1), or None."""
    if "learned_sink" not in request["score_mods"]:
        return None
    return torch.randn(request["heads"], 1, device=DEVICE)
