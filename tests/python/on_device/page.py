# SPDX-License-Identifier: Apache-2.0
"""The table of python/RECIPES.md that is made from the record of a session: python3 tests/python/on_device/page.py"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "reports/device/python.json"
PAGE = ROOT / "python/RECIPES.md"
PATTERN = re.compile(r"(<!-- generated: counts-beside-ncu -->\n).*?(<!-- /generated -->)", re.S)
WAYS = {"in the process": '`count(by="kernel")`', "by the command": "`tilescope profile`", "by ncu": "ncu"}


def found(record, step):
    return next(entry["found"] for entry in record["steps"] if entry["step"] == step)


def table(record):
    counts = found(record, "the same by ncu and by the command")
    lines = [f"| kernel, SM<->L2 read bytes | {' | '.join(WAYS.values())} |", "|---|" + "---:|" * len(WAYS)]
    for rows in zip(*(counts[way] for way in WAYS), strict=True):
        cells = [f"{row['sm_l2_read_bytes']:,}" for row in rows]
        lines.append(f"| `{rows[0]['kernel']}` | {' | '.join(cells)} |")
    for boundary in ("dram_read_bytes", "dram_write_bytes"):
        cells = [f"{sum(row[boundary] for row in counts[way]):,}" for way in WAYS]
        lines.append(f"| all, {boundary.replace('_', ' ')} | {' | '.join(cells)} |")
    host = found(record, "host cost")
    calls = (
        f"{passes} {host[f'tilescope {passes}']} us (torch's own {host[f'torch {passes}']})"
        for passes in ("forward", "both")
    )
    where = found(record, "before torch has a context")["info"]
    return "\n".join(lines) + (
        f"\n\n{where['device']}, torch {where['torch']}. ncu leaves out what a kernel leaves dirty in L2; TileScope counts\n"
        "it as written. What a call of `tilescope.torch` costs the host: " + ", ".join(calls) + ".\n"
    )


def page_of(record, page):
    return PATTERN.sub(lambda match: match[1] + "\n" + table(record) + "\n" + match[2], page)


if __name__ == "__main__":
    PAGE.write_text(page_of(json.loads(RECORD.read_text()), PAGE.read_text()))
