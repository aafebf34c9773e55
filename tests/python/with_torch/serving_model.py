# SPDX-License-Identifier: Apache-2.0
"""A small Llama-shaped model with random weights, two ways to keep its keys and values, and greedy serving of a batch."""

import torch

from tilescope.torch import attention


def normalised(x):
    return torch.nn.functional.rms_norm(x, x.shape[-1:])


class Model:
    """Grouped heads, rotary positions, gated feed-forward layers; weights N(0, 1 / inputs)."""

    vocabulary, width, layers, heads, heads_kv, head_dim = 512, 256, 3, 8, 2, 64

    def __init__(self, seed, dtype=torch.float32, device="cpu"):
        self.dice = torch.Generator().manual_seed(seed)
        self.dtype, self.device = dtype, device
        kv = self.heads_kv * self.head_dim
        self.embedding = self.weight(self.vocabulary, self.width) * self.vocabulary**0.5
        self.head = self.weight(self.width, self.vocabulary)
        self.blocks = [
            {"q": self.weight(self.width, self.heads * self.head_dim), "k": self.weight(self.width, kv),
             "v": self.weight(self.width, kv), "out": self.weight(self.heads * self.head_dim, self.width),
             "gate": self.weight(self.width, 512), "up": self.weight(self.width, 512), "down": self.weight(512, self.width)}
            for _ in range(self.layers)
        ]  # fmt: skip

    def weight(self, inputs, outputs):
        drawn = torch.randn(inputs, outputs, generator=self.dice) / inputs**0.5
        return drawn.to(self.device, self.dtype)

    def rotated(self, x, positions):
        """x (heads, tokens, head_dim) turned by positions (tokens,)."""
        frequencies = 10000.0 ** (-torch.arange(0, self.head_dim, 2, device=self.device) / self.head_dim)
        angles = positions[:, None] * frequencies
        even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).to(x.dtype)

    def logits(self, tokens, positions, attend):
        """Of tokens (tokens,); attend(layer, q, k, v) of (heads, tokens, head_dim) gives the heads' results."""
        x = self.embedding[tokens]
        for layer, weights in enumerate(self.blocks):
            y = normalised(x)
            q, k, v = ((y @ weights[name]).unflatten(1, (-1, self.head_dim)).transpose(0, 1) for name in "qkv")
            heads = attend(layer, self.rotated(q, positions), self.rotated(k, positions), v)
            x = x + heads.transpose(0, 1).flatten(1) @ weights["out"]
            y = normalised(x)
            x = x + (torch.nn.functional.silu(y @ weights["gate"]) * (y @ weights["up"])) @ weights["down"]
        return normalised(x).float() @ self.head.float()


class PlainCache:
    """Keys and values of each sequence one after the other, and attention by torch's own functions."""

    def __init__(self, model):
        self.kept = {}
        self.heads = model.heads // model.heads_kv

    def prefill(self, sequence):
        def attend(layer, q, k, v):
            self.kept[layer, sequence] = k, v
            return self.math(q, k, v, causal=True)

        return attend

    def decode(self, sequences):
        def attend(layer, q, k, v):
            outs = []
            for i, sequence in enumerate(sequences):
                old_k, old_v = self.kept[layer, sequence]
                both = torch.cat([old_k, k[:, i : i + 1]], 1), torch.cat([old_v, v[:, i : i + 1]], 1)
                self.kept[layer, sequence] = both
                outs.append(self.math(q[:, i : i + 1], *both, causal=False))
            return torch.cat(outs, 1)

        return attend

    def math(self, q, k, v, causal):
        k, v = (tensor.repeat_interleave(self.heads, 0).float() for tensor in (k, v))
        scores = q.float() @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores[0], dtype=torch.bool).triu(1), float("-inf"))
        return (scores.softmax(-1) @ v).to(q.dtype)


class PagedCache:
    """Pages of a pool in an order by chance, and attention by tilescope."""

    POOL = 64

    def __init__(self, model, page_size, seed, **options):
        shape = (model.layers, self.POOL, model.heads_kv, page_size, model.head_dim)
        self.k, self.v = (torch.full(shape, float("nan"), device=model.device, dtype=model.dtype) for _ in "kv")
        order = torch.randperm(self.POOL, generator=torch.Generator().manual_seed(seed)).tolist()
        self.free, self.pages, self.lengths = order, {}, {}
        self.size, self.options = page_size, options

    def put(self, layer, sequence, k, v, first):
        """Stores keys from the place `first` on, (heads, keys, head_dim)."""
        own = self.pages.setdefault(sequence, [])
        while len(own) * self.size < first + k.shape[1]:
            own.append(self.free.pop())
        for i in range(k.shape[1]):
            page, place = own[(first + i) // self.size], (first + i) % self.size
            self.k[layer, page, :, place], self.v[layer, page, :, place] = k[:, i], v[:, i]
        self.lengths[sequence] = first + k.shape[1]

    def attend(self, layer, q, sequences, causal):
        """q (B, heads, queries, head_dim) over all keys of those sequences."""
        most = max(len(self.pages[sequence]) for sequence in sequences)
        table = [self.pages[sequence] + [-1] * (most - len(self.pages[sequence])) for sequence in sequences]
        return attention(q, self.k[layer], self.v[layer], causal=causal, page_table=table,
                         key_lengths=[self.lengths[sequence] for sequence in sequences], **self.options)

    def prefill(self, sequence):
        def attend(layer, q, k, v):
            self.put(layer, sequence, k, v, 0)
            return self.attend(layer, q[None], [sequence], True)[0]

        return attend

    def decode(self, sequences):
        def attend(layer, q, k, v):
            for i, sequence in enumerate(sequences):
                first = self.lengths[sequence] - (layer > 0)  # the first layer has counted this token
                self.put(layer, sequence, k[:, i : i + 1], v[:, i : i + 1], first)
            return self.attend(layer, q.transpose(0, 1)[:, :, None], sequences, False)[:, :, 0].transpose(0, 1)

        return attend


@torch.no_grad()
def serve(model, prompts, count, cache):
    """The `count` likeliest tokens behind each prompt, one after the other: prefill, then all sequences at once."""
    prompts = [prompt.to(model.device) for prompt in prompts]
    last = [model.logits(prompt, torch.arange(len(prompt), device=model.device), cache.prefill(i))[-1].argmax()
            for i, prompt in enumerate(prompts)]
    told = [[int(token)] for token in last]
    for step in range(count - 1):
        tokens = torch.tensor([tokens[-1] for tokens in told], device=model.device)
        positions = torch.tensor([len(prompt) + step for prompt in prompts], device=model.device)
        for own, token in zip(told, model.logits(tokens, positions, cache.decode(range(len(prompts)))).argmax(1)):
            own.append(int(token))
    return told
