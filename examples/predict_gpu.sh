#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Predicting a GPU that is not at hand: its data sheet as a machine file, beside a GPU that is known.
# `tilescope list machines --template` prints an empty file; every number wants its source and the kind of that source.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tilescope=${TILESCOPE:-./tilescope}

# One layer of a model, reading a prompt on a device, and then writing a token behind it.
"$tilescope" simulate --model llama3-8b --seqlen 2k --machine examples/predict_gpu.json --compare h200
"$tilescope" simulate --model llama3-8b --seqlen 2k --decode --batch 16 --machine examples/predict_gpu.json --compare h200 --explain-model
