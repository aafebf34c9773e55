#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlashAttention-3's error experiment on PyTorch's attention: what `tilescope study paper-errors` makes of our kernels.

Eight draws, one head of N8448 D128, of the inputs that the study draws, which `tilescope run --save-inputs` writes. O in fp16 and
bf16 against fp64 attention of the inputs before they were rounded, as a record of runs. Usage: peer_errors.py PROGRAM RECORD.json
"""

import json
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import numpy
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

KEYS, HEAD_DIM, DRAWS = 8448, 128, 8
PEERS = {"pytorch:math": SDPBackend.MATH, "pytorch:flash2": SDPBackend.FLASH_ATTENTION,
         "pytorch:cudnn": SDPBackend.CUDNN_ATTENTION}


def draw(program, seed):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "run", "--inputs", "outlier", "--seed", str(seed), "--heads", "1", "--seqlen", str(KEYS), "--head-dim", str(HEAD_DIM),
                        "--dtype", "fp32", "--save-inputs", "--out", folder], check=True, stdout=subprocess.DEVNULL)
        return [torch.from_numpy(numpy.load(Path(folder) / f"{name}.npy")).cuda() for name in "qkv"]


def main(program, path):
    runs = []
    for seed in range(1, DRAWS + 1):
        q, k, v = draw(program, seed)
        exact = torch.softmax(q.double() @ k.double().transpose(-1, -2) * HEAD_DIM**-0.5, dim=-1) @ v.double()
        for dtype, torch_dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
            problem = {"batch": 1, "heads": 1, "heads_kv": 1, "seqlen_q": KEYS, "seqlen_k": KEYS, "head_dim": HEAD_DIM,
                       "dtype": dtype, "causal": False, "window": [-1, -1], "dropout": 0.0, "seed": seed}
            for name, backend in PEERS.items():
                with sdpa_kernel(backend):
                    out = torch.nn.functional.scaled_dot_product_attention(*(each.to(torch_dtype) for each in (q, k, v)))
                error = out.double() - exact
                runs.append({"problem": problem, "kernel": name, "inputs": "outlier", "passes": [], "error": {
                    "o_of_unrounded_inputs": {"max_abs": error.abs().max().item(), "rmse": error.square().mean().sqrt().item(),
                                              "max_ulp": 0.0, "non_finite": int((~out.isfinite()).sum()), "bound": 0.0}}})
    record = {"schema": "tilescope.run/1", "argv": sys.argv, "git": {"sha": "unknown"}, "when": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "machine": {"name": torch.cuda.get_device_name(), "libraries": f"PyTorch {torch.__version__}"}, "runs": runs}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(record, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
