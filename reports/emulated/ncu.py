#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ncu counted, as compare.py reads a record: ncu.py CSV DEVICE writes JSON on standard output. The CSV is that of
`ncu --csv --page raw --print-units base` with the counters of `ncu.py --metrics`, where the profiler cannot count."""

from __future__ import annotations

import csv
import json
import sys
import time
from typing import Any

SECTOR = 32  # bytes
# By the names of the profiler, whose definitions these are (profiler/counters/metric_table.cpp).
COUNTERS = {
    "sm_l2_read_bytes": {"l1tex__m_xbar2l1tex_read_bytes.sum": 1},
    "sm_l2_write_bytes": {
        "lts__t_sectors_srcunit_tex_op_write.sum": SECTOR,
        "lts__t_sectors_srcunit_tex_op_red.sum": SECTOR,
        "lts__t_sectors_srcunit_tex_op_atom.sum": SECTOR,
    },
    "dram_read_bytes": {"dram__bytes_read.sum": 1},
    "local_store_bytes": {"l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum": 1},
    "local_reload_bytes": {"l1tex__t_bytes_pipe_lsu_mem_local_op_ld_lookup_miss.sum": 1},
}


def record_of(text: str, device: str) -> dict[str, Any]:
    """A kernel for each row of the table, which the program's own lines stand around."""
    rows = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    if len(rows) < 3:
        raise SystemExit("no table of kernels: ncu --csv --page raw --print-units base")
    columns = {name: place for place, name in enumerate(rows[0])}
    kernels = []
    for row in rows[2:]:  # behind the names stand the units
        counters = {
            name: float(row[place].replace(",", ""))
            for name, place in columns.items()
            if "__" in name and "." in name and row[place]
        }
        measured = {
            name: sum(factor * counters[counter] for counter, factor in terms.items())
            for name, terms in COUNTERS.items()
            if all(counter in counters for counter in terms)
        }
        grid = [int(number) for number in row[columns["Grid Size"]].strip("()").split(",")]
        kernels.append({"name": row[columns["Kernel Name"]], "launch": {"grid": grid}, "measured": measured})
    when = time.strftime("%FT%TZ", time.gmtime())
    return {"when": when, "machine": [{"name": device, "replay": "ncu"}], "kernels": kernels}


if __name__ == "__main__":
    if sys.argv[1:] == ["--metrics"]:
        print(",".join(sorted({counter for terms in COUNTERS.values() for counter in terms})))
    else:
        with open(sys.argv[1], errors="replace") as file:
            print(json.dumps(record_of(file.read(), sys.argv[2]), indent=1))
