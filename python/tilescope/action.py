# SPDX-License-Identifier: Apache-2.0
"""What action.yml runs: a record held against a base, for a job summary, annotations and charts. Standard library alone.

Reads COMMAND or RECORD, BASE and BUDGETS from the environment, as GitHub's runners give them.
"""

from __future__ import annotations

import gzip
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).resolve().parents[2] / "tilescope"


def main() -> int:
    """Returns the exit code of `tilescope diff`."""
    settings = os.environ
    program = settings.get("TILESCOPE_PROGRAM", str(PROGRAM))
    folder = Path(tempfile.mkdtemp(dir=settings.get("RUNNER_TEMP")))
    record = settings.get("RECORD", "")
    if bool(record) == bool(settings.get("COMMAND")):
        print("::error::give either a command or a record", flush=True)
        return 2
    if not record:
        record = str(folder / "new.json")
        made = subprocess.run([program, *shlex.split(settings["COMMAND"]), "--quiet", "--json", record], check=False)
        if made.returncode != 0:
            return made.returncode
    changes = folder / "diff.json"
    budgets = [word for line in settings.get("BUDGETS", "").split() for word in ("--budget", line)]
    judged = subprocess.run(
        [program, "diff", settings["BASE"], record, *budgets, "--json", str(changes)],
        check=False, stdout=subprocess.PIPE, text=True,
    )
    for line in judged.stdout.splitlines():  # names of a record may hold what the runner would take for a command
        print(f"| {line}" if line.lstrip().startswith(("::", "##[")) else line, flush=True)
    if changes.exists():
        diff = json.loads(changes.read_text())
        for line in errors_of(diff):
            print(line, flush=True)
        append(settings.get("GITHUB_STEP_SUMMARY"), summary(diff))
    if judged.returncode in (0, 1):  # else the record was refused
        benchmarks = folder / "benchmarks.json"
        benchmarks.write_text(json.dumps(smaller_is_better(json.loads(text_of(Path(record)))), indent=2))
        append(settings.get("GITHUB_OUTPUT"), f"benchmarks={benchmarks}\n")
    return judged.returncode


def text_of(path: Path) -> str:
    """Of a record, which may be compressed."""
    data = path.read_bytes()
    return (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode()


def escaped(text: Any, *, in_property: bool = False) -> str:
    """Text of a record inside a workflow command, where a newline would start another one."""
    marks = {"%": "%25", "\r": "%0D", "\n": "%0A"} | ({":": "%3A", ",": "%2C"} if in_property else {})
    return str(text).translate(str.maketrans(marks))


def cell(text: Any) -> str:
    """Text of a record inside Markdown: one line without markup of its own."""
    marks = {mark: "\\" + mark for mark in "\\`*_[]|"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
    return " ".join(str(text).split()).translate(str.maketrans(marks))


def append(path: str | None, text: str) -> None:
    """To a file that the runner names; nowhere without one."""
    if path:
        with open(path, "a") as file:
            file.write(text)


def changes_of(diff: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every change beside the run that it is of."""
    return [
        (f"{run['kernel']} {run.get('problem', '')}".strip(), change)
        for run in diff["runs"]
        for change in run["changes"]
    ]


def errors_of(diff: dict[str, Any]) -> list[str]:
    """An error of a GitHub job for each regression."""
    return [
        f"::error title={escaped(change['metric'], in_property=True)} grew::"
        + escaped(f"{run}, {change['where']}: {change['base']} -> {change['new']} {change['unit']}")
        for run, change in changes_of(diff)
        if change["regressed"]
    ]


def summary(diff: dict[str, Any]) -> str:
    """Markdown: a table of what moved, and what is gone or new."""
    lines = ["## Bytes", "", f"{diff['regressions']} beyond the budget.", ""]
    rows = changes_of(diff)
    if rows:
        lines += ["| run | metric | where | base | new | |", "|---|---|---|---:|---:|---|"]
    for run, change in rows:
        verdict = "| **regression**" if change["regressed"] else "|"
        cells = [run, change["metric"], change["where"], change["base"], f"{change['new']} {change['unit']}"]
        lines.append("| " + " | ".join(cell(text) for text in cells) + f" {verdict} |")
    for word in ("gone", "new"):
        lines += [f"- {word}: {cell(run['kernel'])} {cell(run.get('problem', ''))}" for run in diff[f"{word}_runs"]]
    return "\n".join(lines) + "\n"


def smaller_is_better(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Every byte count of a record of runs, as benchmark-action charts them."""
    entries = []
    for run in record.get("runs", []):
        problem = run["problem"]
        shape = " ".join(f"{key}={problem[key]}" for key in ("batch", "heads", "seqlen_q", "head_dim", "dtype"))
        for entry in run["passes"]:
            for account in ("closed_form", "simulated", "measured"):
                for key, value in entry.get(account, {}).items():
                    if key.endswith(("_read_bytes", "_write_bytes")):
                        name = f"{run['kernel']} {entry['name']} {account}.{key}"
                        entries.append({"name": name, "unit": "B", "value": value, "extra": shape})
    return entries


if __name__ == "__main__":
    sys.exit(main())
