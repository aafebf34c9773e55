#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The bytes of somebody's PyTorch script, and the tile programs behind its kernels.
#
#   examples/profile_pytorch.sh [RECORD]
#
# With a GPU and PyTorch the script is measured; RECORD is one that was measured elsewhere, which needs neither.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tilescope=${TILESCOPE:-./tilescope}
record=${1:-}

if [[ -z $record ]]; then
  record=$(mktemp --suffix=.json)
  trap 'rm -f "$record"' EXIT
  "$tilescope" profile --metrics traffic,causes --json "$record" -- python3 examples/pytorch_attention.py
fi

# The problem is the script's: which program and which block sizes move as many bytes as were counted?
"$tilescope" explain "$record" --batch 2 --heads 16 --seqlen 4k --head-dim 128 --dtype fp16 --kernel-filter flash_fwd
