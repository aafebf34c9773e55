#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlashAttention-3's error experiment on PyTorch's attention: what `tilescope study paper-errors` makes of our kernels.

Eight draws of inputs N(0, 1) + N(0, 100) * Bernoulli(0.001), one head of N8448 D128; O in fp16 against fp64 attention of the
inputs before they were rounded, as a record of runs. Usage: peer_errors.py RECORD.json
"""

import json
import sys
from datetime import datetime, timezone

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

KEYS, HEAD_DIM, DRAWS, OUTLIERS, OUTLIER_DEVIATION = 8448, 128, 8, 0.001, 10.0
PEERS = {"pytorch:math": SDPBackend.MATH, "pytorch:flash2": SDPBackend.FLASH_ATTENTION,
         "pytorch:cudnn": SDPBackend.CUDNN_ATTENTION}


def draw(seed):
    generator = torch.Generator("cuda").manual_seed(seed)

    def tensor():
        shape = (1, 1, KEYS, HEAD_DIM)
        normal, outlier = (torch.randn(shape, device="cuda", dtype=torch.float64, generator=generator) for _ in range(2))
        is_outlier = torch.rand(shape, device="cuda", generator=generator) < OUTLIERS
        return normal + OUTLIER_DEVIATION * outlier * is_outlier

    return tensor(), tensor(), tensor()


def main(path):
    runs = []
    for seed in range(1, DRAWS + 1):
        q, k, v = draw(seed)
        exact = torch.softmax(q @ k.transpose(-1, -2) * HEAD_DIM**-0.5, dim=-1) @ v
        problem = {"batch": 1, "heads": 1, "heads_kv": 1, "seqlen_q": KEYS, "seqlen_k": KEYS, "head_dim": HEAD_DIM,
                   "dtype": "fp16", "causal": False, "window": [-1, -1], "dropout": 0.0, "seed": seed}
        for name, backend in PEERS.items():
            with sdpa_kernel(backend):
                out = torch.nn.functional.scaled_dot_product_attention(*(each.half() for each in (q, k, v)))
            error = out.double() - exact
            runs.append({"problem": problem, "kernel": name, "inputs": "outlier", "passes": [], "error": {
                "o_of_unrounded_inputs": {"max_abs": error.abs().max().item(), "rmse": error.square().mean().sqrt().item(),
                                          "max_ulp": 0.0, "non_finite": int((~out.isfinite()).sum()), "bound": 0.0}}})
    record = {"schema": "tilescope.run/1", "argv": sys.argv, "git": {"sha": "unknown"}, "when": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "machine": {"name": torch.cuda.get_device_name(), "libraries": f"PyTorch {torch.__version__}"}, "runs": runs}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(record, file)


if __name__ == "__main__":
    main(sys.argv[1])
