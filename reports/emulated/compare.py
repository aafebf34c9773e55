#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what counters said against what was foreseen, folder by folder, and writes the tables of README.md: compare.py
[--fill]. Names what is beyond its bound. Without --fill, exit code 1 where README.md has other tables. With --folder FOLDER
that folder's tables alone, on standard output; exit code 1 where something is beyond its bound. With --join FOLDER makes one
file, measured.json.gz, of what measure.sh has counted and timed there."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PART_OF_L1 = 0.15  # where L1 may serve loads, or merge stores
WITHOUT_L1 = 0.005
OF_DRAM = 0.15
COUNTED = ("sm_l2_read_bytes", "sm_l2_write_bytes", "dram_read_bytes", "local_store_bytes", "local_reload_bytes")
TOLD_APART = 0.005  # what is nearer stands in a sentence, not in a table
Row = dict[str, Any]


def records(folder: Path, pattern: str) -> list[dict[str, Any]]:
    return [json.loads(gzip.decompress(path.read_bytes())) for path in sorted(folder.glob(pattern))]


def compared(name: str, foreseen: dict[str, Any], measured: dict[str, Any]) -> Iterator[Row]:
    """A row each way. What ptxas spilled is in no PTX: where it was counted, it is taken off what was measured."""
    metrics = foreseen["measured"]
    ways = (("read", "l1_load_hit_bytes", "local_reload_bytes"), ("write", "merged_store_bytes", "local_store_bytes"))
    for way, hidden, spill in ways:
        spilled = measured.get(spill, 0)
        is_, was = metrics[f"sm_l2_{way}_bytes"], measured[f"sm_l2_{way}_bytes"] - spilled
        least, most = foreseen[f"least_{way}_bytes"], is_ + metrics.get(hidden, 0)
        if is_ == was == 0:
            continue
        by_l1 = least < most
        off = was / is_ - 1 if is_ else float("inf")
        yield {
            "name": name + (f", without {spilled:.0f} B of spills" if spilled else ""), "way": way, "foreseen": is_, "measured": was, "off": off, "by_l1": by_l1, "least": least,
            "most": most, "failed": abs(off) > (PART_OF_L1 if by_l1 else WITHOUT_L1),
        }  # fmt: skip


def in_order(told: list[Row]) -> list[Row]:
    """Failures first."""
    return sorted(told, key=lambda row: (not row["failed"], -abs(row["off"])))


def of_kernels(foreseen: dict[str, Any], measured: dict[str, Any]) -> list[Row]:
    found = {kernel["name"].partition("(")[0]: kernel["measured"] for kernel in measured["kernels"]}
    told = (compared(kernel["name"], kernel, found[kernel["name"]]) for kernel in foreseen["kernels"])
    return in_order([row for rows in told for row in rows])


def of_rungs(rungs: list[dict[str, Any]], measured: list[dict[str, Any]]) -> list[Row]:
    told: list[Row] = []
    for rung, record in zip(rungs, measured, strict=True):
        for foreseen, kernel in zip(rung["launches"], record["kernels"], strict=True):
            assert kernel["launch"]["grid"] == foreseen["grid"], rung["kernel"]
            whole = foreseen["name"].replace("(anonymous namespace)::", "")
            short = whole.partition("(")[0].partition("<")[0].rpartition("::")[2].rpartition(" ")[2]
            told += compared(f"{rung['kernel']}: {short}", foreseen, kernel["measured"])
    return in_order(told)


def of_dram(foreseen: dict[str, Any], measured: dict[str, Any]) -> list[Row]:
    """What DRAM sends a cold L2. Without a model's word, the sectors that are touched at all."""
    found = {kernel["name"].partition("(")[0]: kernel["measured"] for kernel in measured["kernels"]}
    told: list[Row] = []
    for kernel in foreseen["kernels"]:
        is_ = kernel["measured"].get("dram_read_bytes", kernel["must_read_bytes"])
        off = found[kernel["name"]]["dram_read_bytes"] / is_ - 1
        told.append({
            "name": kernel["name"], "way": "read", "foreseen": is_, "measured": found[kernel["name"]]["dram_read_bytes"],
            "off": off, "by_l1": False, "failed": abs(off) > OF_DRAM,
        })  # fmt: skip
    return in_order(told)


def seconds_of(text: str) -> dict[str, float]:
    """Of each launch that measure.py made."""
    return {name: float(seconds) for name, seconds in re.findall(r"^(\w+): right, ([\d.]+) s$", text, re.MULTILINE)}


def counts_of(record: dict[str, Any]) -> dict[str, Any]:
    """What the tables need of a record."""
    kernels = [
        {
            "name": kernel["name"],
            "launch": {"grid": kernel["launch"]["grid"]},
            "measured": {name: kernel["measured"][name] for name in COUNTED if name in kernel["measured"]},
        }
        for kernel in record["kernels"]
    ]
    return {"when": record["when"], "machine": record["machine"], "kernels": kernels}


def join(folder: Path) -> None:
    """What was counted, and the seconds that each tool's launches took."""
    tools = {tool: folder / f"{tool}.txt" for tool in ("memcheck", "racecheck")}
    counted = sorted(folder.glob("rung-*.json"), key=lambda path: int(path.stem.rpartition("-")[2]))
    parts = [folder / "kernels.json", *counted]
    told: dict[str, Any] = {
        "kernels": counts_of(json.loads(parts[0].read_text())),
        "rungs": [counts_of(json.loads(path.read_text())) for path in counted],
        "seconds": {tool: seconds_of(path.read_text()) for tool, path in tools.items() if path.exists()},
    }
    text = json.dumps(told, separators=(",", ":"))
    (folder / "measured.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    for path in (*parts, *tools.values()):
        path.unlink(missing_ok=True)


def speed(foreseen: dict[str, Any], seconds: dict[str, dict[str, float]]) -> str:
    """What emulation takes, on one thread, beside compute-sanitizer on the device."""
    memcheck, racecheck = seconds["memcheck"], seconds["racecheck"]
    columns = ["warp instructions", "M/s", "emulated [s]", "memcheck [s]", "racecheck [s]"]
    lines = ["| " + " | ".join(["kernel", *columns]) + " |", "|---|" + "---:|" * len(columns)]
    for kernel in foreseen["kernels"]:
        name, count, taken = kernel["name"], kernel["instructions"], kernel["seconds"]
        times = f"{taken:.2f} | {memcheck[name]:.4f} | {racecheck[name]:.4f}"
        lines.append(f"| {name} | {count} | {count / taken / 1e6:.1f} | {times} |")
    return "\n".join(lines)


def table(of: list[dict[str, Any]]) -> str:
    """Of what is off; the rest in a sentence."""
    near = [row for row in of if not row["failed"] and abs(row["off"]) < TOLD_APART]
    ways: dict[str, set[str]] = {}
    for row in near:
        ways.setdefault(row["name"], set()).add(row["way"])
    named = (
        f"{name} {'and '.join(sorted(f'{way} ' for way in of_kernel))}".strip() for name, of_kernel in ways.items()
    )
    exact = f"Nearer than {TOLD_APART:.1%}, {len(near)} sums: {', '.join(named)}."
    of = [row for row in of if row not in near]
    if not of:
        return exact
    lines = ["| kernel | way | foreseen [B] | counters [B] | off | bounds [B] |", "|---|---|---:|---:|---:|---|"]
    for row in of:
        bounds = f"{row['least']:.0f} ... {row['most']:.0f}" if row["by_l1"] else ""
        off = f"**{row['off']:+.2%}**" if row["failed"] else f"{row['off']:+.2%}"
        bytes_ = f"{row['foreseen']:.0f} | {row['measured']:.0f}"
        lines.append(f"| {row['name']} | {row['way']} | {bytes_} | {off} | {bounds} |")
    return "\n".join(lines + ["", exact] * bool(near))


def verdict_on(told: list[Row], bound: float) -> str:
    failed = sum(row["failed"] for row in told)
    within = sum(row["least"] * 0.995 <= row["measured"] <= row["most"] * 1.005 for row in told if row["by_l1"])
    inside = f"; {within} within their bounds" if any(row["by_l1"] for row in told) else ""
    return f"{len(told) - failed} of {len(told)} within {bound:.1%}{inside}"


def in_short(told: list[Row], dram: list[Row]) -> str:
    """The verdicts in a sentence, and a table of the failures alone."""
    by_l1, without = ([row for row in told if row["by_l1"] == part] for part in (True, False))
    verdicts = (
        f"Where L1 plays no part, {verdict_on(without, WITHOUT_L1)}; where it does, {verdict_on(by_l1, PART_OF_L1)}"
    )
    verdicts += f"; read from DRAM, {verdict_on(dram, OF_DRAM)}" if dram else ""
    failed = in_order([row for row in (*told, *dram) if row["failed"]])
    return f"{verdicts}.\n" + (f"\n{table(failed)}\n" if failed else "")


def judged(told: list[Row], level: str) -> str:
    parts = []
    for by_l1, heading, bound in (
        (False, "Where L1 plays no part", WITHOUT_L1),
        (True, "Where L1 plays a part: modelled", PART_OF_L1),
    ):
        of = [row for row in told if row["by_l1"] == by_l1]
        if not of:
            continue
        parts.append(f"{level} {heading}\n\n{verdict_on(of, bound)}.\n\n{table(of)}\n")
    return "\n".join(parts)


def judged_dram(told: list[Row]) -> str:
    """With a table of the failures alone."""
    failed, worst = [row for row in told if row["failed"]], max(told, key=lambda row: abs(row["off"]))
    verdict = (
        f"{len(told) - len(failed)} of {len(told)} within {OF_DRAM:.0%}, {worst['name']} worst: {worst['off']:+.2%}."
    )
    return f"{verdict}\n\n{table(failed)}" if failed else verdict


def of_today(folders: list[Path]) -> str:
    """What the device as it is now says of draws that it was made from: a fit, no prediction."""
    told: list[Row] = []
    for folder in folders:
        for now in records(folder, "again.json.gz"):
            (measured,) = records(folder, "measured.json.gz")
            same = [
                pair
                for pair in zip(now["rungs"], measured["rungs"], strict=False)
                if [each["grid"] for each in pair[0]["launches"]]
                == [each["launch"]["grid"] for each in pair[1]["kernels"]]
            ]  # of rungs that are launched as they were then
            rows = of_kernels(now, measured["kernels"])
            rows += of_rungs([rung for rung, _ in same], [record for _, record in same])
            told += [{**row, "name": f"{row['name']} ({folder.name})"} for row in rows]
    if not told:
        return ""
    return (
        f"## The device as it is now, of the draws that it was made from\n\nFitted, not foreseen. {in_short(told, [])}"
    )


def text(folders: list[Path]) -> tuple[str, list[Row]]:
    """The tables, with the speed of the last that was timed, and their rows. All is told of the last draw alone."""
    parts, told, timed = [], [], ""
    for folder in folders:
        (foreseen,), counted = records(folder, "predicted.json.gz"), records(folder, "measured.json.gz")
        when = f"seed {foreseen['seed']}, foreseen {foreseen['when']}"
        if not counted:
            parts.append(f"## {folder.name}: {when}, not measured yet\n")
            continue
        measured = counted[0]["kernels"]
        device = measured["machine"][0]["name"]
        parts.append(f"## {folder.name}: {when}, measured {measured['when']} on an {device}\n")
        of_kernels_, dram = of_kernels(foreseen, measured), of_dram(foreseen, measured)
        rungs = records(folder, "predicted-rungs.json.gz")
        measured_rungs = counted[0]["rungs"]
        of_rungs_ = [row for each in rungs if measured_rungs for row in of_rungs(each["rungs"], measured_rungs)]
        told += [*of_kernels_, *dram, *of_rungs_]
        if folder != folders[-1]:
            parts.append(in_short([*of_kernels_, *of_rungs_], dram))
            continue
        parts.append(judged(of_kernels_, "###"))
        parts.append(f"### Read from DRAM, of a cold L2: modelled\n\n{judged_dram(dram)}\n")
        for each in rungs:
            parts += [f"### Our rungs, foreseen {each['when']}\n", judged(of_rungs_, "####")]
        if len(counted[0]["seconds"]) == 2:
            timed = f"## Speed of {folder.name}, beside compute-sanitizer on the device\n\n" + speed(
                foreseen, counted[0]["seconds"]
            )
    parts += [of_today(folders), f"{timed}\n" if timed else ""]
    return "\n".join(parts), told


def named(told: list[Row]) -> str:
    return "\n".join(f"{row['name']} {row['way']}: {row['off']:+.2%}" for row in told if row["failed"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--join"]:
        sys.exit(join(Path(sys.argv[2])))
    if sys.argv[1:2] == ["--folder"]:
        tables, told = text([Path(sys.argv[2])])
        print(tables, named(told), sep="\n")
        sys.exit(any(row["failed"] for row in told))
    page = HERE / "README.md"
    begin, end = "<!-- generated: compare.py -->\n", "<!-- /generated -->\n"
    before, _, rest = page.read_text().partition(begin)
    inside, _, after = rest.partition(end)
    found = [path.parent for path in HERE.glob("*/predicted.json.gz")]
    found.sort(key=lambda folder: str(records(folder, "predicted.json.gz")[0]["when"]))
    tables, told = text(found)
    new = f"\n{tables}\n"
    if "--fill" in sys.argv:
        page.write_text(before + begin + new + end + after)
    elif inside != new:
        sys.exit("README.md has other tables: reports/emulated/compare.py --fill")
    print(named(told))
