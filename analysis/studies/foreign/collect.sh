#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the records of reports/foreign on a machine with a GPU, PyTorch and Triton: each problem's kernels with their
# bytes and what these are made of. TILESCOPE names the program.
# collect.sh [FOLDER [--drawn SEED COUNT]]: the three problems below, or COUNT drawn ones
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
script=analysis/studies/foreign/attention_kernels.py
out=${1:-reports/foreign}
tilescope=${TILESCOPE:-./tilescope}

collect() {
  local name=$1
  shift
  "$tilescope" profile --metrics traffic,causes \
    --kernel-filter 'flash|fmha|attn|attention|sdpa|cudnn|Fill|copy|reduce_kernel|nvjet|gemm|softmax|SoftMax' \
    --json "$out/$name.json" -- python3 "$script" "$@"
}

if [[ ${2:-} == --drawn ]]; then
  # The problems stand beside their records; Triton compiles them all at once.
  mkdir -p "$out"
  python3 analysis/studies/foreign/draw.py "$3" "$4" >"$out/problems.txt"
  number=0
  while read -r -a problem; do
    python3 "$script" --warm "${problem[@]}" </dev/null &
  done <"$out/problems.txt"
  wait
  while read -r -a problem; do
    number=$((number + 1))
    collect "$(printf %02d $number)" "${problem[@]}" </dev/null || echo "not collected: ${problem[*]}"
  done <"$out/problems.txt"
  exit
fi
warm_and_collect() {
  python3 "$script" --all --warm "${@:2}"
  collect "$@" --all
}
warm_and_collect mha --batch 2 --heads 16 --seqlen 4096 --head-dim 128 --dtype fp16
warm_and_collect mha-causal --batch 4 --heads 16 --seqlen 2048 --head-dim 64 --dtype fp16 --causal
warm_and_collect gqa-causal --batch 1 --heads 32 --heads-kv 4 --seqlen 4096 --head-dim 128 --dtype bf16 --causal
