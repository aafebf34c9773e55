# SPDX-License-Identifier: Apache-2.0
# Explains the records that `collect.sh FOLDER --drawn SEED COUNT` made, and says how many kernels of them are explained
# and by what chance: score.py FOLDER [TOLD.json.gz]; the latter takes what was said of
# each kernel. TILESCOPE names the program.
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

folder = Path(sys.argv[1])
tilescope = os.environ.get("TILESCOPE", "./tilescope")
kernels, open_ones, told_of = [], [], []
for number, problem in enumerate((folder / "problems.txt").read_text().splitlines(), 1):
    record = next(folder.glob(f"{number:02}.json*"), None)
    if record is None:
        continue
    command = [tilescope, "explain", record, *problem.split(), "--quiet", "--json", "-"]
    told = subprocess.run(command, capture_output=True, text=True)
    if told.returncode != 0:
        sys.exit(f"{record.name}: {told.stderr.strip()}")
    here = [kernel for kernel in json.loads(told.stdout)["kernels"] if kernel["explanation"]["agreement"] != "no attention"]
    kernels += here
    told_of.append({"problem": problem, "kernels": [
        {"name": kernel["name"], "grid": kernel["launch"]["grid"],
         "bytes": [kernel["measured"][f"sm_l2_{way}_bytes"] for way in ("read", "write")],
         "left_over": [kernel["explanation"][f"{way}_residual_bytes"] for way in ("read", "write")],
         "told": kernel["explanation"]["answer"]["verdict"]} for kernel in here]})
    missing = [kernel for kernel in here if kernel["explanation"]["agreement"] != "explained"]
    open_ones += missing
    print(f"{record.name}  {len(here) - len(missing):3} of {len(here)} explained  {problem}")
    for kernel in missing:
        explanation = kernel["explanation"]
        print(f"    {kernel['name'][:80]}: {explanation['answer']['verdict']}; left over "
              f"{explanation['read_residual_bytes']} B read, {explanation['write_residual_bytes']} B written")
if not kernels:
    sys.exit(f"{folder}: no record of its problems")
chances = sorted(kernel["explanation"].get("by_chance", 0) for kernel in kernels
                 if kernel["explanation"]["agreement"] == "explained")
share = 100 * (1 - len(open_ones) / len(kernels))
print(f"{len(kernels) - len(open_ones)} of {len(kernels)} kernels explained ({share:.1f} %), by chance "
      f"{100 * sum(chances) / len(chances):.2f} % in the mean and at most {100 * chances[-1]:.1f} %")
if len(sys.argv) > 2:
    Path(sys.argv[2]).write_bytes(gzip.compress(json.dumps(told_of, indent=1).encode(), 9, mtime=0))
