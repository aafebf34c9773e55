#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Counts on a device what predict.py foresaw: measure.sh FOLDER [TILESCOPE], where FOLDER is what predict.py left. Needs
# numpy. Leaves measured.json.gz there, with the kernels' times under compute-sanitizer where that is, and places.json.
# Counts by ncu where TILESCOPE is not there or may not; our rungs need TILESCOPE. Prints the tables, and at the end what is
# off by more than its bound.
set -uo pipefail
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
folder=$(realpath "$1") tilescope=${2:+$(realpath "$2")}
root=$(realpath "$here/../..")
if [[ -d $root/libraries ]]; then # of a machine that packed the program, and CUPTI wherever this one has it
  cupti=$(find / -name 'libcupti.so.13' -not -path '/proc/*' 2>/dev/null | head -1)
  export LD_LIBRARY_PATH=$root/libraries:${cupti%/*}:${LD_LIBRARY_PATH:-}
fi
if ! command -v nvidia-smi >/dev/null; then
  echo "measure.sh: no NVIDIA driver here" >&2
  exit 3
fi
gunzip -kf "$folder"/predicted*.json.gz
tar -C "$folder" -xf "$folder/cubins.tar.xz"
device=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
failed=0
python=${PYTHON:-python3}

# count RECORD COMMAND...
count() {
  local record=$1
  shift
  if [[ -n $tilescope ]] &&
    timeout 120 "$tilescope" profile --quiet --metrics traffic,local_store_bytes,local_reload_bytes --json "$record" -- "$@"; then
    return
  fi
  rm -f "$record"
  if ! command -v ncu >/dev/null; then
    echo "measure.sh: ${record##*/} was not counted, and there is no ncu" >&2
    return 1
  fi
  timeout 300 ncu --csv --page raw --print-units base --cache-control all --metrics "$("$python" "$here/ncu.py" --metrics)" "$@" \
    >"${record%.json}.csv" && "$python" "$here/ncu.py" "${record%.json}.csv" "$device" >"$record"
}

timeout 30 "$python" "$here/places.py" >"$folder/places.json" || failed=1
count "$folder/kernels.json" "$python" "$here/measure.py" "$folder" || failed=1
rungs=$(cd "$here" && "$python" -c "import json, kernels, sys
for rung in kernels.rungs(json.load(sys.stdin)['seed']): print(*rung[1])" <"$folder/predicted.json")
number=0
while read -u 3 -ra words; do
  [[ -n $tilescope ]] || break
  out=$(mktemp -d)
  count "$folder/rung-$((number++)).json" "$tilescope" "${words[@]}" --out "$out" || failed=1
  rm -r "$out"
done 3<<<"$rungs"
for tool in memcheck racecheck; do
  command -v compute-sanitizer >/dev/null || break
  timeout 60 compute-sanitizer --tool "$tool" "$python" "$here/measure.py" "$folder" >"$folder/$tool.txt" 2>&1 || failed=1
done
"$python" "$here/compare.py" --join "$folder" || failed=1
rm -f "$folder"/*.cubin "$folder"/{predicted,predicted-rungs}.json "$folder"/*.csv
"$python" "$here/compare.py" --folder "$folder" || failed=1
exit "$failed"
