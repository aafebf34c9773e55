#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Counts on a device what predict.py foresaw: measure.sh FOLDER TILESCOPE, where FOLDER holds predicted.json and cubins.
# Leaves kernels.json, rung-*.json, places.json and, where compute-sanitizer is, the kernels' times under it there.
set -uo pipefail
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
folder=$(realpath "$1") tilescope=$(realpath "$2")
failed=0
count() {
  local record=$1
  shift
  timeout 60 "$tilescope" profile --quiet --metrics traffic --json "$record" -- "$@" || failed=1
}

timeout 30 python3 "$here/places.py" >"$folder/places.json" || failed=1
count "$folder/kernels.json" python3 "$here/measure.py" "$folder"
rungs=$(cd "$here" && python3 -c "import json, kernels, sys
for rung in kernels.rungs(json.load(sys.stdin)['seed']): print(*rung[1])" <"$folder/predicted.json")
number=0
while read -u 3 -ra words; do
  out=$(mktemp -d)
  count "$folder/rung-$((number++)).json" "$tilescope" "${words[@]}" --out "$out"
  rm -r "$out"
done 3<<<"$rungs"
for tool in memcheck racecheck; do
  command -v compute-sanitizer >/dev/null || break
  timeout 60 compute-sanitizer --tool "$tool" python3 "$here/measure.py" "$folder" >"$folder/$tool.txt" 2>&1 || failed=1
done
exit "$failed"
