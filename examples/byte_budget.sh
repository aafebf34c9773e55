#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A byte budget in CI. Bytes do not jitter, so that a change of them can be tested on any machine, without a GPU.
#
#   examples/byte_budget.sh [FOLDER]     keeps its records there, or nowhere
#
# In a repository of your own: commit base.json, run the last two commands in CI, and let them fail the job.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tilescope=${TILESCOPE:-./tilescope}
folder=${1:-}
if [[ -z $folder ]]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi

# What the kernel moves today; made once, and committed.
"$tilescope" simulate --kernel cpu:flash2 --preset llama3-8b --seqlen 1k --tile 128x64 --quiet --json "$folder/base.json"

# What it moves after a change: here somebody halves the tile.
"$tilescope" simulate --kernel cpu:flash2 --preset llama3-8b --seqlen 1k --tile 64x64 --quiet --json "$folder/new.json"

# Exits with 1 where a budget is broken, and says which tensor grew and why, in Markdown for the pull request.
"$tilescope" diff "$folder/base.json" "$folder/new.json" --budget sm_l2_read_bytes=0.5% --budget dram_read_bytes=5% \
  --explain --format markdown
