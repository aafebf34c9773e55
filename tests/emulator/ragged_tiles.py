#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A kv tile takes gpu:flash3 no more instructions where the q tile has rows beyond the matrix, on the emulated device.

No mask is due for those rows: nobody stores them. Loops that ask in vain are taken off, as is what comes once a q tile.
"""
import json
import os
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
SLACK = 1.03
# head_dim, tile, rows of a whole tile, and of ragged ones: within a warpgroup's 64 rows, and with a warpgroup beyond
CASES = [(128, "128x128", 128, (120, 60)), (64, "256x64", 256, (250, 180)), (128, "64x128", 64, (50,))]


def instructions(head_dim: int, tile: str, rows: int, keys: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "record.json")
        run = [PROGRAM, "run", "--kernel", "gpu:flash3", "--dtype", "fp16", "--heads", "1", "--seqlen-q", str(rows),
               "--seqlen-k", str(keys), "--head-dim", str(head_dim), "--tile", tile, "--splits", "1",
               "--out", os.path.join(folder, "out"), "--quiet"]
        subprocess.run([PROGRAM, "emulate", "--quiet", "--json", record, "--", *run], check=True)
        with open(record) as file:
            measured = [kernel["measured"] for kernel in json.load(file)["kernels"]]
            return round(sum(each["warp_instructions"] - each["asking_instructions"] for each in measured))


def of_kv_tiles(head_dim: int, tile: str, rows: int) -> int:
    return instructions(head_dim, tile, rows, 2048) - instructions(head_dim, tile, rows, 1024)


failed = False
for head_dim, tile, whole, ragged in CASES:
    most = SLACK * of_kv_tiles(head_dim, tile, whole)
    for rows in ragged:
        taken = of_kv_tiles(head_dim, tile, rows)
        failed |= taken > most
        print(f"{'ok  ' if taken <= most else 'FAIL'} head_dim {head_dim}, tile {tile}, {rows} rows: {taken} of {most:.0f} warp instructions")
sys.exit(failed)
