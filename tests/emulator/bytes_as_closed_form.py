#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes between SMs and L2 of our rungs on the emulated device, counted, and by their closed forms: equal.

Rows of these problems are whole sectors. Where they are not, requests ask for sectors twice, which no form counts.
Two stores may cover a sector, which L1 sends once if they arrive in a row, by timing: what is written then lies between
two numbers, and so must the form; elsewhere the two are one.
"""
import json
import os
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
# kernel and choices, queries, keys, head_dim, type, passes, whether what is written is equal too (gpu:standard
# writes lse by one lane a row, a sector each), and what else the problem has.
CASES = [
    ("gpu:standard", 128, 128, 64, "fp16", "fwd", False),
    ("gpu:standard-mma", 256, 208, 64, "fp16", "fwd+bwd", True),
    ("gpu:standard-mma", 128, 192, 128, "bf16", "fwd", True),
    ("gpu:flash1", 128, 128, 64, "fp16", "fwd", True),
    ("gpu:flash1-mma", 256, 200, 64, "fp16", "fwd", True),
    ("gpu:flash1-mma", 128, 200, 128, "bf16", "fwd", True),
    ("gpu:flash2-simt", 128, 128, 64, "fp32", "fwd", True),
    ("gpu:flash2-mma", 256, 200, 64, "fp16", "fwd", True),
    ("gpu:decode --splits 3", 8, 500, 64, "fp16", "fwd", True),
    ("gpu:decode --splits fixed:128", 16, 1000, 128, "bf16", "fwd", True),
    ("gpu:decode --splits 2 --heads 16 --window 300,20", 1, 1000, 128, "fp16", "fwd", True),  # eight heads packed
    ("gpu:decode --splits 2 --heads 16 --pack-gqa off", 8, 400, 256, "bf16", "fwd", True),
    ("gpu:decode --splits 3 --heads 16", 1, 1000, 128, "bf16", "fwd", True, "--page-size 16"),
    ("gpu:decode --splits 2", 8, 700, 64, "fp16", "fwd", True, "--page-size 256"),
    ("gpu:flash2-mma", 256, 200, 128, "bf16", "fwd", True, "--page-size 16"),
    ("gpu:flash2-mma", 128, 500, 64, "fp16", "fwd", True, "--causal --page-size 256"),
    ("gpu:flash2-mma", 256, 256, 64, "fp16", "fwd", True, "--causal --mask documents:70,0,150,36 --softcap 20"),
    ("gpu:flash2-mma", 256, 200, 128, "bf16", "fwd", True, "--mask block-causal:48 --alibi --learned-sink"),
    ("gpu:flash2-mma", 256, 256, 64, "fp16", "fwd+bwd", True, "--causal --mask prefix:40 --softcap 20 --alibi"),
    ("gpu:flash3-basic", 200, 200, 64, "fp16", "fwd+bwd", True),
    ("gpu:flash3-basic", 128, 200, 128, "bf16", "fwd+bwd", True),
    ("gpu:flash3", 200, 200, 64, "fp16", "fwd", True),
    ("gpu:flash3", 128, 192, 192, "bf16", "fwd+bwd", True),
    ("gpu:flash3 --heads 8 --pack-gqa on --tile 64x128", 16, 300, 128, "bf16", "fwd", True, "--causal"),
    ("gpu:flash3", 128, 128, 72, "fp16", "fwd", False),  # boxes whole; O's rows end in the middle of a sector
]


def counted(arguments: list[str]) -> tuple[int, int, int]:
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "record.json")
        words = [PROGRAM, "run", *arguments, "--out", os.path.join(folder, "out"), "--quiet"]
        subprocess.run([PROGRAM, "emulate", "--quiet", "--json", record, "--", *words], check=True)
        with open(record) as file:
            kernels = json.load(file)["kernels"]
    read, written = (sum(kernel["measured"][f"sm_l2_{way}_bytes"] for kernel in kernels) for way in ("read", "write"))
    least = sum(kernel["emulated"].get("least_write_bytes", kernel["measured"]["sm_l2_write_bytes"]) for kernel in kernels)
    return read, least, written


def by_formula(arguments: list[str]) -> tuple[int, int]:
    text = subprocess.run([PROGRAM, "simulate", *arguments, "--quiet", "--json", "-"], check=True, capture_output=True).stdout
    forms = [each["closed_form"] for each in json.loads(text)["runs"][0]["passes"]]
    reads = sum(form["sm_l2_read_bytes"] for form in forms)
    return reads, sum(form["sm_l2_write_bytes"] + form.get("sm_l2_reduce_bytes", 0) for form in forms)


failed = False
for kernel, queries, keys, head_dim, dtype, passes, writes_too, *more in CASES:
    heads = "" if "--heads" in kernel else "--heads 2"
    problem = f"--kernel {kernel} --batch 1 {heads} --heads-kv 2 --seqlen-q {queries} --seqlen-k {keys} --head-dim {head_dim} --dtype {dtype} --pass {passes} {' '.join(more)}"
    (read, least, written), should = counted(problem.split()), by_formula(problem.split())
    right = read == should[0] and (not writes_too or least <= should[1] <= written)
    failed |= not right
    print(f"{'ok  ' if right else 'FAIL'} {problem}: read {read}, by formula {should[0]}; written {least} ... {written}, by formula {should[1]}")
sys.exit(failed)
