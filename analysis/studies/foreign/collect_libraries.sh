#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the records behind libraries.md on a machine with a GPU: one problem, forward and backward, by every library that is found,
# and by three kernels of ours. TILESCOPE names the program.
# Usage: collect_libraries.sh FOLDER
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
readonly out=$1 tilescope=${TILESCOPE:-./tilescope}
readonly problem=(--batch 2 --heads 16 --seqlen 4096 --head-dim 128 --dtype bf16 --causal)
readonly kernels=(python3 analysis/studies/foreign/attention_kernels.py --all "${problem[@]}")
readonly jax=(python3 analysis/studies/foreign/jax_attention.py "${problem[@]}")
# What is compiled stays for the run with counters, in which nothing is timed to choose a kernel.
export FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1 TRITON_CACHE_AUTOTUNING=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
export JAX_COMPILATION_CACHE_DIR=${TMPDIR:-/tmp}/jax-cache JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
export XLA_FLAGS="--xla_gpu_autotune_level=0 --xla_gpu_enable_command_buffer="
mkdir -p "$out"

count() { # NAME COMMAND...
  timeout "${LIMIT:-90}" "$tilescope" profile --metrics traffic,causes --count 60 \
    --kernel-filter 'flash|fmha|attn|attention|mha|sdpa|cudnn|nvjet|gemm|softmax|SoftMax|flex|triton|parallel|fusion' \
    --json "$out/$1.json" --quiet -- "${@:2}" </dev/null
}
own() { # NAME KERNEL
  timeout "${LIMIT:-60}" "$tilescope" profile --kernel "$2" "${problem[@]}" --pass fwd+bwd --metrics traffic,causes --no-verify \
    --closed-form --json "$out/$1.json" --quiet
}

case ${2:-all} in
warm | all)
  for library in FLASH_ATTENTION_4 FLEX_ATTENTION FLASH_LINEAR_ATTENTION TRITON; do
    timeout 100 "${kernels[@]}" --warm --only $library </dev/null &
  done
  timeout 100 "${jax[@]}" </dev/null &
  wait
  ;;&
count | all)
  for library in FLASH_ATTENTION CUDNN_ATTENTION EFFICIENT_ATTENTION FLEX_ATTENTION FLASH_ATTENTION_4 \
    FLASH_LINEAR_ATTENTION TRITON MATH; do
    count "${library,,}" "${kernels[@]}" --only $library
  done
  count jax "${jax[@]}"
  own ours-flash2-mma gpu:flash2-mma
  own ours-flash3 gpu:flash3
  ;;
esac
