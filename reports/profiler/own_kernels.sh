#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TileScope's kernels, forward and backward, at three shapes, round after round: what the profiler is held against Nsight
# Compute on, beside attention.py. Usage: own_kernels.sh TILESCOPE [ROUNDS]
set -euo pipefail
for ((round = 0; round < ${2:-1}; ++round)); do
  for problem in "--heads 8 --seqlen 1024 --head-dim 128" "--heads 8 --seqlen 1024 --head-dim 64 --causal" \
    "--heads 8 --heads-kv 2 --seqlen 2048 --head-dim 64"; do
    read -ra options <<<"$problem"
    "$1" verify --kernel gpu:flash2-mma --kernel gpu:standard --kernel gpu:flash1 --dtype fp16 --pass fwd+bwd "${options[@]}"
    "$1" verify --kernel gpu:flash2-simt --dtype fp32 --pass fwd+bwd "${options[@]}"
  done
done
