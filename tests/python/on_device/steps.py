# SPDX-License-Identifier: Apache-2.0
"""What the modules of this folder consist of: steps, each of which fails for itself."""

import json
import os
import sys
import time
import traceback
from pathlib import Path

LONGEST_S = 60  # of another process
TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
STEPS = []


def step(function):
    STEPS.append(function)
    return function


def require(condition, *said):
    if not condition:
        raise AssertionError(" ".join(map(str, said)))


def close(name, one, other, tolerance):
    difference = (one.float() - other.float()).abs().max().item()
    scale = max(1.0, other.float().abs().max().item())
    require(difference <= tolerance * scale, name, "is off by", difference, "at a scale of", scale)
    return difference / scale


def bytes_of(rows):
    """What is kept of measured rows."""
    kept = ("sm_l2_read_bytes", "sm_l2_write_bytes", "dram_read_bytes", "dram_write_bytes")
    return [{"kernel": short(row["kernel"])} | {name: int(row[f"measured.{name}"]) for name in kept} for row in rows]


def short(kernel):
    """A kernel's name as every tool writes it: up to its template's or its parameters' bracket."""
    return (
        kernel.replace("void ", "")
        .replace("(anonymous namespace)::", "")
        .split("<")[0]
        .split("(")[0]
        .rpartition("::")[2]
    )


def make_qkv(dtype, batch=2, heads=8, heads_kv=2, seqlen_q=321, seqlen_k=449, head_dim=64, device="cuda"):
    import torch

    torch.manual_seed(1)
    shapes = [(batch, heads, seqlen_q, head_dim)] + 2 * [(batch, heads_kv, seqlen_k, head_dim)]
    return [torch.randn(shape, device=device, dtype=dtype).requires_grad_() for shape in shapes]


def by_definition(q, k, v, causal):
    """In fp64, with masks aligned bottom-right."""
    import torch

    q, k, v = (tensor.double() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(k.shape[2] - q.shape[2])
        scores = scores.masked_fill(~visible, float("-inf"))
    return scores.softmax(-1) @ v


def run():
    """Of a module, in its order: python3 MODULE.py RESULTS.json [STEP...]"""
    path, *wanted = sys.argv[1:]
    results = []
    for function in STEPS:
        if wanted and function.__name__ not in wanted:
            continue
        entry, began = {"step": function.__name__.replace("_", " ")}, time.monotonic()
        try:
            entry |= {"ok": True, "found": function()}
        except BaseException as error:  # one step's failure is not another's
            said = {"error": f"{type(error).__name__}: {error}"[:3000], "where": traceback.format_exc()[-1500:]}
            entry |= {"ok": False, "found": getattr(error, "found", None), **said}
        entry["elapsed_s"] = round(time.monotonic() - began, 2)
        results.append(entry)
        print(f"{entry['ok']}\t{entry['elapsed_s']} s\t{entry['step']}\t{entry.get('error', '')[:400]}", flush=True)
        part = Path(path + ".part")
        part.write_text(json.dumps(results, default=str))
        os.replace(part, path)
    sys.stdout.flush()
    os._exit(not all(entry["ok"] for entry in results))  # whatever exit handlers of several profilers do to each other
