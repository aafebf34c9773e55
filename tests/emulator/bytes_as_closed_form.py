#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes between SMs and L2 of our rungs on the emulated device, counted, and by their closed forms: equal.

Reads are taken with what L1 serves, which may serve a sector that two requests use in part; writes without what plain
stores write of sectors beside their data. What L1 merges of such stores is a matter of timing.
"""
import json
import os
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
# kernel and choices, queries, keys, head_dim, type, passes, and what else the problem has.
CASES = [
    ("gpu:standard", 128, 128, 64, "fp16", "fwd"),
    ("gpu:standard-mma", 256, 208, 64, "fp16", "fwd+bwd"),
    ("gpu:standard-mma", 128, 192, 128, "bf16", "fwd"),
    ("gpu:standard-mma", 128, 192, 72, "bf16", "fwd+bwd", "--heads 3 --heads-kv 3"),
    ("gpu:flash1", 128, 128, 64, "fp16", "fwd"),
    ("gpu:flash1-mma", 256, 200, 64, "fp16", "fwd"),
    ("gpu:flash1-mma", 128, 200, 128, "bf16", "fwd"),
    ("gpu:flash2-simt", 128, 128, 64, "fp32", "fwd"),
    ("gpu:flash2-mma", 256, 200, 64, "fp16", "fwd"),
    ("gpu:decode --splits 3", 8, 500, 64, "fp16", "fwd"),
    ("gpu:decode --splits fixed:128", 16, 1000, 128, "bf16", "fwd"),
    ("gpu:decode --splits 2 --heads 16 --window 300,20", 1, 1000, 128, "fp16", "fwd"),  # eight heads packed
    ("gpu:decode --splits 2 --heads 16 --pack-gqa off", 8, 400, 256, "bf16", "fwd"),
    ("gpu:decode --splits 3 --heads 16", 1, 1000, 128, "bf16", "fwd", "--page-size 16"),
    ("gpu:decode --splits 2", 8, 700, 64, "fp16", "fwd", "--page-size 256"),
    ("gpu:decode --splits 3 --heads 16", 1, 1000, 128, "bf16", "fwd", "--kv-dtype fp8e4m3 --descale-k random --descale-v 2"),
    ("gpu:decode --splits 2", 8, 700, 64, "fp16", "fwd", "--kv-dtype fp8e4m3 --page-size 16"),
    ("gpu:mla-decode --heads 16 --heads-kv 1", 9, 333, 576, "fp16", "fwd", "--shared-kv --head-dim-v 512 --causal"),
    ("gpu:mla-decode --splits 3 --heads 128 --heads-kv 1", 1, 400, 576, "bf16", "fwd", "--shared-kv --head-dim-v 512 --page-size 64"),
    ("gpu:mla-decode --splits 2 --heads 16", 8, 250, 320, "bf16", "fwd", "--shared-kv --head-dim-v 256 --page-size 16"),
    ("gpu:mla-decode --heads 3 --heads-kv 3", 131, 133, 72, "fp16", "fwd", "--shared-kv --head-dim-v 64"),
    ("gpu:mla-decode --splits 2 --heads 3 --heads-kv 3", 131, 333, 72, "fp16", "fwd", "--shared-kv --head-dim-v 64"),
    ("gpu:flash2-mma", 256, 200, 128, "bf16", "fwd", "--page-size 16"),
    ("gpu:flash2-mma", 128, 500, 64, "fp16", "fwd", "--causal --page-size 256"),
    ("gpu:flash2-mma", 256, 256, 64, "fp16", "fwd", "--causal --mask documents:70,0,150,36 --softcap 20"),
    ("gpu:flash2-mma", 256, 200, 128, "bf16", "fwd", "--mask block-causal:48 --alibi --learned-sink"),
    ("gpu:flash2-mma", 256, 256, 64, "fp16", "fwd+bwd", "--causal --mask prefix:40 --softcap 20 --alibi"),
    ("gpu:flash3-basic", 200, 200, 64, "fp16", "fwd+bwd"),
    ("gpu:flash3-basic", 128, 200, 128, "bf16", "fwd+bwd"),
    ("gpu:flash3", 200, 200, 64, "fp16", "fwd"),
    ("gpu:flash3", 128, 192, 192, "bf16", "fwd+bwd"),
    ("gpu:flash3 --heads 8 --pack-gqa on --tile 64x128", 16, 300, 128, "bf16", "fwd", "--causal"),
    ("gpu:flash3", 131, 133, 72, "fp16", "fwd+bwd", "--heads 3 --heads-kv 3"),
    ("gpu:flash3-basic", 131, 133, 24, "bf16", "fwd+bwd", "--heads 3 --heads-kv 3"),
    ("gpu:standard", 131, 133, 64, "fp16", "fwd+bwd", "--heads 3 --heads-kv 3"),
    ("gpu:standard", 70, 101, 24, "fp32", "fwd+bwd", "--heads 3 --heads-kv 3"),
    ("gpu:standard-mma", 131, 133, 72, "bf16", "fwd+bwd", "--heads 3 --heads-kv 3 --causal"),
    ("gpu:flash1", 131, 133, 24, "bf16", "fwd+bwd", "--heads 3 --heads-kv 3"),
    ("gpu:flash1", 131, 70, 200, "fp16", "fwd+bwd", "--heads 3 --heads-kv 3"),
    ("gpu:flash1-mma", 131, 133, 72, "fp16", "fwd", "--heads 3 --heads-kv 3"),
    ("gpu:flash2-simt", 131, 133, 40, "fp32", "fwd+bwd", "--heads 3 --heads-kv 3"),
    ("gpu:flash2-mma", 131, 133, 72, "fp16", "fwd+bwd", "--heads 3 --heads-kv 3 --causal"),
    ("gpu:flash2-mma", 132, 133, 200, "bf16", "fwd+bwd", "--heads 3 --heads-kv 3"),
    ("gpu:flash2-mma", 256, 200, 192, "fp16", "fwd+bwd", "--head-dim-v 128"),
    ("gpu:flash2-mma", 131, 133, 184, "bf16", "fwd+bwd", "--heads 3 --heads-kv 3 --causal --head-dim-v 120"),
    ("gpu:flash2-mma", 131, 133, 72, "fp16", "fwd+bwd", "--heads 3 --heads-kv 3 --head-dim-v 128"),
    ("gpu:flash3", 300, 333, 192, "bf16", "fwd", "--causal --head-dim-v 128"),
    ("gpu:flash3", 200, 200, 136, "fp16", "fwd", "--head-dim-v 72"),
    ("gpu:flash3", 256, 256, 64, "fp16", "fwd", "--causal --mask documents:70,0,150,36"),
    ("gpu:flash3", 256, 200, 128, "bf16", "fwd", "--mask block-causal:48"),
    ("gpu:flash3 --heads 4", 256, 640, 64, "bf16", "fwd", "--mask blocks:128;0,2;1,3,4"),
    ("gpu:flash3", 300, 200, 64, "bf16", "fwd", "--causal --alibi --learned-sink"),
    ("gpu:flash3", 256, 200, 64, "fp16", "fwd", "--causal --softcap 20"),
    ("gpu:flash3", 200, 300, 128, "fp16", "fwd", "--window 70,9 --softcap 20 --alibi"),
    ("gpu:flash3 --heads 4", 256, 256, 128, "bf16", "fwd", "--causal --mask documents:70,0,150,36 --learned-sink"),
    ("gpu:split-k", 131, 133, 56, "fp16", "fwd", "--heads 3 --heads-kv 3"),
]


def counted(arguments: list[str]) -> tuple[int, int]:
    """Bytes that are read, with those that L1 serves, and written, without what plain stores write of sectors beside
    their data."""
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "record.json")
        words = [PROGRAM, "run", *arguments, "--out", os.path.join(folder, "out"), "--quiet"]
        subprocess.run([PROGRAM, "emulate", "--quiet", "--json", record, "--", *words], check=True)
        with open(record) as file:
            kernels = json.load(file)["kernels"]

    def total(metric: str) -> int:
        return sum(kernel["measured"][metric] for kernel in kernels)

    beside = total("global_store_bytes") - total("stored_data_bytes") - total("merged_store_bytes")
    return total("sm_l2_read_bytes") + total("l1_load_hit_bytes"), total("sm_l2_write_bytes") - beside


def by_formula(arguments: list[str]) -> tuple[int, int]:
    text = subprocess.run([PROGRAM, "simulate", *arguments, "--quiet", "--json", "-"], check=True, capture_output=True).stdout
    forms = [each["closed_form"] for each in json.loads(text)["runs"][0]["passes"]]
    return sum(form["sm_l2_read_bytes"] for form in forms), sum(form["sm_l2_write_bytes"] for form in forms)


failed = False
for kernel, queries, keys, head_dim, dtype, passes, *more in CASES:
    told = " ".join([kernel, *more])
    heads = ("" if "--heads " in told else "--heads 2 ") + ("" if "--heads-kv" in told else "--heads-kv 2")
    problem = f"--kernel {told} --batch 1 {heads} --seqlen-q {queries} --seqlen-k {keys} --head-dim {head_dim} --dtype {dtype} --pass {passes}"
    counts, should = counted(problem.split()), by_formula(problem.split())
    failed |= counts != should
    print(f"{'ok  ' if counts == should else 'FAIL'} {problem}: read {counts[0]}, by formula {should[0]}; written {counts[1]}, by formula {should[1]}")
sys.exit(failed)
