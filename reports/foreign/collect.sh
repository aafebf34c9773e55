#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the records of this folder on a machine with a GPU, PyTorch and Triton: each problem's kernels with their
# bytes and what these are made of. collect.sh [FOLDER]; TILESCOPE names the program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
script=reports/foreign/attention_kernels.py
out=${1:-reports/foreign}
tilescope=${TILESCOPE:-./tilescope}

collect() {
  local name=$1
  shift
  python3 "$script" --warm "$@"
  "$tilescope" profile --metrics traffic,causes \
    --kernel-filter 'flash|fmha|attn|sdpa|cudnn|Fill|copy|reduce_kernel' \
    --json "$out/$name.json" -- python3 "$script" "$@"
}

collect mha --batch 2 --heads 16 --seqlen 4096 --head-dim 128 --dtype fp16
collect mha-causal --batch 4 --heads 16 --seqlen 2048 --head-dim 64 --dtype fp16 --causal
collect gqa-causal --batch 1 --heads 32 --heads-kv 4 --seqlen 4096 --head-dim 128 --dtype bf16 --causal
