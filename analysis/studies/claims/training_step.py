#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step of GPT-2 with its attention as it was written before kernels were fused, and with fused kernels.

One model takes both in turn: forward, loss, backward, AdamW, in mixed precision (bf16), dropout 0.1, by torch's modules alone,
with random weights and tokens. Times are CUDA events round a step, one of either attention after the other; memory is what
torch had allocated at most; bytes are those of all kernels of a step, counted by `tilescope profile` in a process of its own.
Usage: training_step.py PROGRAM RECORD.json [SIZE ...], or --step SIZE ATTENTION, which makes the steps to be counted: the second,
which is in an NVTX range.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime, timezone

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

SIZES = {"small": (12, 768, 12, 16), "medium": (24, 1024, 16, 8)}  # blocks, columns, heads, sequences in a step
TOKENS, VOCABULARY, DROPOUT = 1024, 50304, 0.1  # a sequence's; GPT-2's 50257, to a multiple of 64
WARM_UP, ROUNDS = 3, 12
HIDDEN = torch.finfo(torch.bfloat16).min


def unfused(q, k, v):
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=q.device).tril()
    scores = torch.where(causal, scores, torch.full([], HIDDEN, dtype=scores.dtype, device=q.device))
    probs = functional.dropout(torch.softmax(scores, dim=-1).to(v.dtype), DROPOUT)
    return torch.matmul(probs, v)


def fused(q, k, v):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=DROPOUT)


ATTENTIONS = {"unfused": unfused, "fused": fused}


class Block(nn.Module):
    def __init__(self, columns, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(columns), nn.LayerNorm(columns)
        self.qkv, self.projection = nn.Linear(columns, 3 * columns), nn.Linear(columns, columns)
        self.mlp = nn.Sequential(nn.Linear(columns, 4 * columns), nn.GELU(approximate="tanh"),
                                 nn.Linear(4 * columns, columns), nn.Dropout(DROPOUT))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x, attention):
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for each in self.qkv(self.before_attention(x)).chunk(3, dim=-1))
        x = x + self.dropout(self.projection(attention(q, k, v).transpose(1, 2).flatten(-2)))
        return x + self.mlp(self.before_mlp(x))


class Gpt2(nn.Module):
    def __init__(self, blocks, columns, heads):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, columns), nn.Embedding(TOKENS, columns)
        self.blocks = nn.ModuleList(Block(columns, heads) for _ in range(blocks))
        self.dropout, self.last = nn.Dropout(DROPOUT), nn.LayerNorm(columns)

    def forward(self, tokens, attention):
        x = self.dropout(self.words(tokens) + self.places.weight)
        for block in self.blocks:
            x = block(x, attention)
        return functional.linear(self.last(x), self.words.weight)


class Training:
    def __init__(self, size):
        blocks, columns, heads, batch = SIZES[size]
        torch.manual_seed(1)
        self.model = Gpt2(blocks, columns, heads)
        for embedding in (self.model.words, self.model.places):
            nn.init.normal_(embedding.weight, std=0.02)
        self.model.cuda().train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        text = torch.randint(VOCABULARY, (batch, TOKENS + 1), device="cuda")
        self.tokens, self.next = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def step(self, attention):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = self.model(self.tokens, ATTENTIONS[attention])
            loss = functional.cross_entropy(logits.flatten(0, 1), self.next.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def timed(size):
    training = Training(size)
    results = {name: {"samples_s": [], "peak_bytes": 0} for name in ATTENTIONS}
    for turn in range(WARM_UP + ROUNDS):
        for name in list(ATTENTIONS)[::1 if turn % 2 else -1]:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            training.step(name)
            end.record()
            torch.cuda.synchronize()
            if turn < WARM_UP:
                continue
            results[name]["samples_s"].append(start.elapsed_time(end) * 1e-3)
            results[name]["peak_bytes"] = torch.cuda.max_memory_allocated()
    return results


def counted(program, size, attention):
    """Bytes of the kernels of one step, by metric; empty where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "kernels.json")
        command = [program, "profile", "--quiet", "--nvtx", "step", "--metrics", "traffic", "--json", record, "--",
                   sys.executable, os.path.abspath(__file__), "--step", size, attention]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150)
        if done.returncode != 0:
            print(f"{size} {attention}: not counted: {done.stderr[-300:]}", file=sys.stderr)
            return {}
        with open(record, encoding="utf-8") as file:
            found = json.load(file)
    if not found["kernels"]:
        print(f"{size} {attention}: no kernel in the range", file=sys.stderr)
        return {}
    names = ("sm_l2_read_bytes", "sm_l2_write_bytes", "dram_read_bytes", "dram_write_bytes")
    sums = {name: sum(kernel["measured"][name] for kernel in found["kernels"]) for name in names}
    return sums if found["complete"] else {}


def run_of(size, attention, result, bytes_of_step):
    """A run whose one pass is the whole step; its FLOP are six a parameter and token, and those of attention."""
    blocks, columns, heads, batch = SIZES[size]
    products = 6 * batch * TOKENS * (blocks * 12 * columns**2 + VOCABULARY * columns)
    flops = products + 12 * blocks * batch * TOKENS**2 * columns
    samples = result["samples_s"]
    step = {"name": "step", "direction": "backward", "flops": flops, "executed_flops": flops, "exponentials": 0,
            "time": {"median_s": statistics.median(samples), "min_s": min(samples),
                     "noise": statistics.stdev(samples) / statistics.mean(samples), "samples_s": samples}}
    if bytes_of_step:
        step["measured"] = bytes_of_step
    problem = {"batch": batch, "heads": heads, "heads_kv": heads, "seqlen_q": TOKENS, "seqlen_k": TOKENS,
               "head_dim": columns // heads, "dtype": "bf16", "causal": True, "window": [-1, -1], "dropout": DROPOUT, "seed": 1}
    return {"problem": problem, "kernel": f"GPT-2 {size}, a training step, attention {attention}",
            "passes": [step], "device_bytes": {"backward": result["peak_bytes"]}}


def main(arguments):
    if arguments[0] == "--step":
        training = Training(arguments[1])
        training.step(arguments[2])  # which makes AdamW's sums
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_push("step")
        training.step(arguments[2])
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
        return
    program, path, *sizes = arguments
    record = {"schema": "tilescope.run/1", "argv": sys.argv, "git": {"sha": "unknown"},
              "when": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "machine": {"name": torch.cuda.get_device_name(), "libraries": f"PyTorch {torch.__version__}"}, "runs": []}
    for size in sizes or SIZES:
        results = timed(size)
        torch.cuda.empty_cache()
        for attention, result in results.items():
            record["runs"].append(run_of(size, attention, result, counted(program, size, attention)))
            with open(path, "w", encoding="utf-8") as file:
                json.dump(record, file)


if __name__ == "__main__":
    main(sys.argv[1:])
