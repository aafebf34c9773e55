# SPDX-License-Identifier: Apache-2.0
"""The same counts by ncu, by `tilescope profile` and in the process."""

import csv
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from steps import LONGEST_S, bytes_of, require, run, short, step

HERE = Path(__file__).parent


@step
def the_same_by_ncu_and_by_the_command():
    """The function's kernels, counted by ncu, by `tilescope profile -- COMMAND` and in this process."""
    import tilescope as ts
    from function import make_function

    function = make_function()
    function()
    with ts.count(by="kernel") as c:
        function()
    found = {"in the process": bytes_of(c.rows())}
    folder = Path(tempfile.mkdtemp())
    program = [Path(ts.__file__).parent / "bin" / "tilescope", "profile", "--metrics", "traffic", "--quiet"]
    command = [*program, "--json", folder / "profile.json", "--", sys.executable, HERE / "function.py"]
    done = subprocess.run(command, timeout=LONGEST_S, capture_output=True, text=True)
    require(done.returncode == 0, "tilescope profile:", done.stderr[-500:])
    last = -len(found["in the process"])  # the program calls twice
    found["by the command"] = bytes_of(ts.load(folder / "profile.json").rows())[last:]
    found["by ncu"] = by_ncu()[last:]
    for own, *others in zip(*found.values(), strict=True):
        require(all(other["kernel"] == own["kernel"] for other in others), own, others)
        for other in others:
            far = abs(other["sm_l2_read_bytes"] - own["sm_l2_read_bytes"])
            require(far <= 0.01 * own["sm_l2_read_bytes"] + 4096, own, other, found)
    return found


def by_ncu():
    """Rows as of bytes_of()."""
    counters = {
        "l1tex__m_xbar2l1tex_read_bytes.sum": "sm_l2_read_bytes",
        "dram__bytes_read.sum": "dram_read_bytes",
        "dram__bytes_write.sum": "dram_write_bytes",
    }
    ncu = shutil.which("ncu") or next(map(str, Path("/opt/nvidia/nsight-compute").glob("*/ncu")), None)
    require(ncu, "there is no ncu")
    command = [ncu, "--clock-control", "none", "--metrics", ",".join(counters), "--csv", "--print-units", "base"]
    done = subprocess.run(
        [*command, sys.executable, HERE / "function.py"], timeout=LONGEST_S, capture_output=True, text=True
    )
    table = [line for line in done.stdout.splitlines() if line.startswith('"')]
    launches = {}
    for row in csv.DictReader(io.StringIO("\n".join(table))):
        launch = launches.setdefault(row["ID"], {"kernel": short(row["Kernel Name"])})
        launch[counters[row["Metric Name"]]] = int(float(row["Metric Value"].replace(",", "")))
    require(launches, "ncu:", done.stdout[-500:], done.stderr[-500:])
    return list(launches.values())


if __name__ == "__main__":
    run()
