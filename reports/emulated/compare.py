#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what counters said against what was foreseen, and writes the tables of README.md: compare.py [--fill]. Exit code 1
where a kernel is beyond its bound. Without --fill, exit code 1 too where README.md has other tables."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PART_OF_L1 = 0.15  # where L1 may serve loads, or merge stores
WITHOUT_L1 = 0.005


def records(pattern: str) -> list[dict[str, Any]]:
    return [json.loads(gzip.decompress(path.read_bytes())) for path in sorted((HERE / "h200").glob(pattern))]


def compared(name: str, foreseen: dict[str, Any], measured: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row each way."""
    metrics = foreseen["measured"]
    for way, hidden in (("read", "l1_load_hit_bytes"), ("write", "merged_store_bytes")):
        is_, was = metrics[f"sm_l2_{way}_bytes"], measured[f"sm_l2_{way}_bytes"]
        least, most = foreseen[f"least_{way}_bytes"], is_ + metrics.get(hidden, 0)
        if is_ == was == 0:
            continue
        by_l1 = least < most
        off = was / is_ - 1 if is_ else float("inf")
        yield {
            "name": name, "way": way, "foreseen": is_, "measured": was, "off": off, "by_l1": by_l1, "least": least,
            "most": most, "failed": abs(off) > (PART_OF_L1 if by_l1 else WITHOUT_L1),
        }  # fmt: skip


def rows() -> list[dict[str, Any]]:
    (foreseen,), (measured,) = records("predicted.json.gz"), records("kernels.json.gz")
    found = {kernel["name"].partition("(")[0]: kernel["measured"] for kernel in measured["kernels"]}
    told = [row for kernel in foreseen["kernels"] for row in compared(kernel["name"], kernel, found[kernel["name"]])]
    rungs = [rung for each in records("predicted-rungs.json.gz") for rung in each["rungs"]]
    for rung, record in zip(rungs, records("rung-*.json.gz"), strict=False):
        for foreseen, kernel in zip(rung["launches"], record["kernels"], strict=True):
            assert kernel["launch"]["grid"] == foreseen["grid"], rung["kernel"]
            short = foreseen["name"].partition("(")[0].partition("<")[0].rpartition("::")[2].rpartition(" ")[2]
            told += compared(f"{rung['kernel']}: {short}", foreseen, kernel["measured"])
    return sorted(told, key=lambda row: (not row["failed"], -abs(row["off"])))


def table(of: list[dict[str, Any]]) -> str:
    lines = ["| kernel | way | foreseen [B] | counters [B] | off | bounds [B] |", "|---|---|---:|---:|---:|---|"]
    for row in of:
        bounds = f"{row['least']:.0f} ... {row['most']:.0f}" if row["by_l1"] else ""
        off = f"**{row['off']:+.2%}**" if row["failed"] else f"{row['off']:+.2%}"
        lines.append(f"| {row['name']} | {row['way']} | {row['foreseen']:.0f} | {row['measured']:.0f} | {off} | {bounds} |")
    return "\n".join(lines)


def text(told: list[dict[str, Any]]) -> str:
    parts = []
    for by_l1, heading, bound in (
        (False, "Where L1 plays no part", WITHOUT_L1),
        (True, "Where L1 plays a part: modelled", PART_OF_L1),
    ):
        of = [row for row in told if row["by_l1"] == by_l1]
        failed = sum(row["failed"] for row in of)
        within = sum(row["least"] * 0.995 <= row["measured"] <= row["most"] * 1.005 for row in of)
        parts.append(f"## {heading}\n\n{len(of) - failed} of {len(of)} within {bound:.1%}; {within} within their bounds.\n")
        parts.append(table(of) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    told = rows()
    page = HERE / "README.md"
    begin, end = "<!-- generated: compare.py -->\n", "<!-- /generated -->\n"
    before, _, rest = page.read_text().partition(begin)
    inside, _, after = rest.partition(end)
    new = f"\n{text(told)}\n"
    if "--fill" in sys.argv:
        page.write_text(before + begin + new + end + after)
    elif inside != new:
        sys.exit("README.md has other tables: reports/emulated/compare.py --fill")
    print(*(f"{row['name']} {row['way']}: {row['off']:+.2%}" for row in told if row["failed"]), sep="\n")
