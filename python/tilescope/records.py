# SPDX-License-Identifier: Apache-2.0
"""What was modelled or measured: records, and their numbers as tables."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native
from .errors import bad_input
from .record_rows import (
    PASS_CHOICES,
    PROBLEM_FIELDS,
    RARE_FIELDS,
    RUN_CHOICES,
    ceiling_rows,
    gpu_rows,
    is_metric,
    kernel_rows,
    run_rows,
    unit_of,
)  # fmt: skip
from .tables import frame_of, html_table, readable, text_table
from .traces import events_of, save_events

if TYPE_CHECKING:
    import pandas

_LONGEST_NAME = 60  # of a kernel, in a table
_MOST_BYTES = 1 << 28  # of a record; what is compressed could be of any size
_MOST_SIZES = 5  # of blocks, that are told one by one
_SEVERAL_GPUS = "tilescope.distributed/1"


class Record:
    """The record of a command or of a function: JSON of one schema, and tables of it.

    Same contents as the files that the command line writes with ``--json``; `load` reads one.
    """

    def __init__(self, text: str, *, source: str = "record") -> None:
        self._text = text
        self._source = source
        self._json: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The JSON as text."""
        return self._text

    @property
    def json(self) -> dict[str, Any]:
        """The JSON as dictionaries and lists. A copy would cost much: do not change it."""
        if self._json is None:
            self._json = json.loads(self._text)
        return self._json

    @property
    def schema(self) -> str:
        """``tilescope.run/1``, ``tilescope.kernels/1``, ``tilescope.explain/1``, ``tilescope.ceilings/1`` or
        ``tilescope.distributed/1``."""
        return str(self.json["schema"])

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each run and pass, for each launch of a kernel, or for each ceiling. Metrics are called as in
        ``tilescope.metrics()``: ``simulated.dram_read_bytes``; of a run that was judged ``error.o.max_abs`` and
        ``error.o.of_bound`` (1.0 = as large as may be), of each tensor that the pass's direction writes."""
        if self.schema == _SEVERAL_GPUS:
            return [row for run in self.json["runs"] for row in gpu_rows(run)]
        kinds = {"runs": run_rows, "kernels": kernel_rows, "ceilings": ceiling_rows}
        for key, rows in kinds.items():
            if key in self.json:
                return [row for entry in self.json[key] for row in rows(entry)]
        raise bad_input("record", self.schema, "must be a record of runs, of kernels or of ceilings to have rows")

    def frame(self, long: bool = False) -> pandas.DataFrame:
        """The rows as a pandas.DataFrame.

        long : a row for each number instead: metric, account, value, unit.
        """
        rows = self.rows()
        if not long:
            return frame_of(rows)
        stretched = []
        for row in rows:
            facts = {key: value for key, value in row.items() if not is_metric(key)}
            for key, value in row.items():
                if is_metric(key):
                    account, _, metric = key.rpartition(".")
                    stretched.append(
                        {**facts, "metric": metric, "account": account or None, "value": value, "unit": unit_of(key)}
                    )
        return frame_of(stretched)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the record, whole or not at all; compressed where the name ends in .gz."""
        target = Path(path)
        part = target.with_name(target.name + ".part")
        data = self._text.encode()
        try:
            part.write_bytes(gzip.compress(data, mtime=0) if target.suffix == ".gz" else data)
            part.replace(target)
        except OSError as error:
            raise bad_input("path", str(target), f"cannot be written ({error.strerror})") from None

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the kernels, or the passes, that have times as Trace Event JSON, which Perfetto opens: end to end, with
        what was counted of each, and DRAM rates."""
        save_events(path, events_of(self.rows()))

    def __add__(self, other: Record) -> Record:
        """The runs, or the kernels, of both, under the header of the first."""
        if not isinstance(other, Record):
            return NotImplemented
        for key in ("runs", "kernels"):
            if key in self.json and self.schema == other.schema:
                joined = {**self.json, key: self.json[key] + other.json[key]}
                return Record(json.dumps(joined, indent=2) + "\n", source=f"{self._source} + {other._source}")
        raise bad_input("record", other.schema, f"must have the schema of the other, {self.schema}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _record_of, (self._text, self._source)

    def __len__(self) -> int:
        return len(self.json[self._entries()])

    def __repr__(self) -> str:
        return f"<Record {self.schema}: {len(self)} {self._entries()}>"

    def _entries(self) -> str:
        return next(key for key in ("runs", "kernels", "ceilings") if key in self.json)

    def _summary(self) -> list[dict[str, str]]:
        """A few columns of each row, as people read them."""
        table = []
        rows = self.rows()
        varying = _varying(rows)
        for row in rows:
            if "schedule" in row:
                table.append(_gpu_line(row, varying))
                continue
            if "kernel" not in row:
                table.append({"name": row["name"], "per second": readable(row["per_second"], _short(row["unit"]))})
                continue
            shown = {"kernel": _told(row["kernel"])}
            shown |= {field: "" if row.get(field) is None else str(row[field]) for field in varying}
            if "pass" in row:
                shown |= {"pass": row["pass"], "tile": f"{row['block_m']}x{row['block_n']}"}
            if "agreement" in row:
                shown |= {"agreement": row["agreement"], "program": row["program"] or ""}
                shown["block_m"] = _range(row["block_m"])
            shown |= {key: readable(row[key], unit_of(key)) for key in row if _is_told(key, "agreement" in row)}
            table.append(shown)
        return table

    def _repr_html_(self) -> str:
        return html_table(self._summary())

    def __str__(self) -> str:
        return text_table(self._summary())


def _short(unit: str) -> str:
    """``byte/s`` as the tables' units are written."""
    return {"byte/s": "B", "flop/s": "FLOP"}.get(unit, unit)


def _gpu_line(row: dict[str, Any], varying: list[str]) -> dict[str, str]:
    line = {"schedule": row["schedule"], "gpus": str(row["gpus"]), **{field: str(row[field]) for field in varying}}
    line["pass"] = row["pass"]
    for key, value in row.items():
        if key.startswith(("predicted.lost_", "predicted.efficiency", "measured.efficiency")):
            line[key] = f"{100 * value:.1f} %"
        elif is_metric(key) and unit_of(key):
            line[key] = readable(value, unit_of(key))
    return line


def _told(kernel: str) -> str:
    """A kernel's name as a table can hold it: a template's is longer than all the rest of the row."""
    name = kernel.removeprefix("void ")
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."


def _record_of(text: str, source: str) -> Record:
    return Record(text, source=source)


def _varying(rows: list[dict[str, Any]]) -> list[str]:
    """What tells the rows' problems and machines apart, each once."""
    columns: dict[tuple[Any, ...], str] = {}
    for field in (*PROBLEM_FIELDS, *RARE_FIELDS, "simulated_on"):
        values = tuple(row.get(field) for row in rows)
        if len(set(values)) > 1:
            columns.setdefault(values, field)
    return [*columns.values(), *filter(lambda choice: _is_varied(rows, choice), (*RUN_CHOICES, *PASS_CHOICES))]


def _is_varied(rows: list[dict[str, Any]], choice: str) -> bool:
    """Whether a pass of one kernel stands in several rows that were told different choices."""
    told: dict[tuple[Any, ...], Any] = {}
    return any(told.setdefault((row.get("kernel"), row.get("pass")), row.get(choice)) != row.get(choice) for row in rows)


def _range(sizes: tuple[int, ...]) -> str:
    return " ".join(map(str, sizes)) if len(sizes) <= _MOST_SIZES else f"{sizes[0]} ... {sizes[-1]}"


_OF_EXPLANATIONS = ("measured.sm_l2_read_bytes", "measured.sm_l2_write_bytes")


def _is_told(column: str, explained: bool) -> bool:
    """Whether people look for a number in a summary; of what was explained, how much was, and what is left over."""
    if explained:
        return column in _OF_EXPLANATIONS or column.startswith("left_over.")
    if not is_metric(column) or "flops" in column or column == "simulated.l2_bytes":
        return False
    return bool(unit_of(column)) or column.endswith(".of_bound")


def load(record: str | os.PathLike[str]) -> Record:
    """A record from a file, which may be compressed by gzip, or from the JSON text itself.

    Raises BadInput naming file and field where it is damaged.
    """
    text = os.fspath(record)
    source = "record"
    if not text.lstrip().startswith("{"):
        source = text
        try:
            data = Path(source).read_bytes()
            if data.startswith(b"\x1f\x8b"):
                data = zlib.decompressobj(wbits=31).decompress(data, _MOST_BYTES)
            text = data.decode()
        except (OSError, zlib.error, UnicodeDecodeError) as error:
            raise bad_input("record", source, f"cannot be read ({error})") from None
    return Record(_native.checked(source, text), source=source)
