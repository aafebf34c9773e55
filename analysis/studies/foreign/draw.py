# SPDX-License-Identifier: Apache-2.0
# Draws problems, a line of options each, from a seed: draw.py SEED COUNT. Head dimensions by turns, so that each comes
# as often; lengths are log-uniform and ragged but for a quarter; heads in groups of 1, 2, 4, 8 and 7.
import math
import random
import sys

HEAD_DIMS = (64, 128, 96, 256, 192, 128, 80)
seed, count = int(sys.argv[1]), int(sys.argv[2])
draw = random.Random(seed)
for i in range(count):
    head_dim = HEAD_DIMS[i % len(HEAD_DIMS)]
    group = draw.choice((1, 1, 2, 4, 8, 7))
    heads_kv = draw.randint(1, max(1, 24 // group))
    seqlen = round(math.exp(draw.uniform(math.log(1000), math.log(9000))))
    if draw.random() < 0.25:
        seqlen = 128 * math.ceil(seqlen / 128)
    lengths = f"--seqlen {seqlen}"
    causal = draw.random() < 0.5
    if not causal and draw.random() < 0.3:
        lengths = f"--seqlen-q {draw.randint(200, seqlen)} --seqlen-k {seqlen}"
    print(f"--batch {draw.randint(1, 3)} --heads {group * heads_kv} --heads-kv {heads_kv} {lengths} "
          f"--head-dim {head_dim} --dtype {draw.choice(('fp16', 'bf16'))}{' --causal' if causal else ''}")
