# SPDX-License-Identifier: Apache-2.0
"""What a device did, against time, as Trace Event JSON: Perfetto and chrome://tracing open it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import bad_input
from .tables import frame_of

if TYPE_CHECKING:
    import pandas

Event = dict[str, Any]
_PROCESS = 1
_MICROSECONDS = 1e6


def _name(what: str, name: str, track: int = 0) -> Event:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": track, "args": {"name": name}}


def _counter(name: str, start_s: float, values: dict[str, float]) -> Event:
    return {"ph": "C", "name": name, "pid": _PROCESS, "ts": start_s * _MICROSECONDS, "args": values}


def _seconds(row: dict[str, Any]) -> float | None:
    """A kernel's own time, or that of the run in which it was counted."""
    if "time.median_s" in row:
        return float(row["time.median_s"])
    nanoseconds = row.get("measured.counter_run_duration")
    return None if nanoseconds is None else nanoseconds * 1e-9


def events_of(rows: list[dict[str, Any]]) -> list[Event]:
    """Kernels or passes end to end, in order of launch, with what was counted of each; beside them their DRAM rates.

    Launches are measured one by one, so that when each of them began says nothing.
    """
    events = [_name("process_name", "TileScope"), _name("thread_name", "kernels, end to end", 1)]
    now = 0.0
    for row in rows:
        seconds = _seconds(row)
        if seconds is None:
            continue
        name = row["kernel"] + (f" {row['pass']}" if "pass" in row else "")
        counted = {key: value for key, value in row.items() if "." in key and value is not None}
        times = {"ts": now * _MICROSECONDS, "dur": seconds * _MICROSECONDS}
        events.append({"ph": "X", "name": name, "pid": _PROCESS, "tid": 1, **times, "args": counted})
        rates = {
            word: row[f"measured.dram_{word}_bytes"] / seconds / 1e9
            for word in ("read", "write")
            if seconds > 0 and f"measured.dram_{word}_bytes" in row
        }
        if rates:
            events.append(_counter("DRAM [GB/s]", now, rates))
        now += seconds
    if len(events) == 2:
        raise bad_input(
            "record", "rows without times", "must have times: count the set traffic, or profile with --time"
        )
    return [*events, _counter("DRAM [GB/s]", now, {"read": 0, "write": 0})]


def save_events(path: str | os.PathLike[str], events: list[Event]) -> None:
    """Writes a trace, whole or not at all."""
    target = Path(path)
    part = target.with_name(target.name + ".part")
    try:
        part.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
        part.replace(target)
    except OSError as error:
        raise bad_input("path", str(target), f"cannot be written ({error.strerror})") from None


class Timeline:
    """What a device did while a function ran, sampled at even intervals; see `tilescope.timeline`.

    ``.json`` has device, chip, interval_s, overflowed (samples were lost: take a longer interval) and samples.
    """

    def __init__(self, sampled: dict[str, Any]) -> None:
        self.json = sampled

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each sample: start_s, length_s, DRAM bytes, shares of the device's peaks (1.0 = all)."""
        return list(self.json["samples"])

    def frame(self) -> pandas.DataFrame:
        """The samples as a pandas.DataFrame."""
        return frame_of(self.rows())

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes Trace Event JSON: DRAM rates, and the use of DRAM, tensor pipes and SMs, against time."""
        events = [_name("process_name", self.json["device"])]
        for sample in self.rows():
            start, length = sample["start_s"], sample["length_s"] or self.json["interval_s"]
            rates = {word: sample[f"dram_{word}_bytes"] / length / 1e9 for word in ("read", "write")}
            shares = {
                "DRAM": sample["dram_read_share"] + sample["dram_write_share"],
                "tensor pipes": sample["tensor_share"],
                "SMs with work": sample["sm_active_share"],
            }
            events.append(_counter("DRAM [GB/s]", start, rates))
            events.append(_counter("use [%]", start, {name: 100 * share for name, share in shares.items()}))
        save_events(path, events)

    def __repr__(self) -> str:
        return f"<Timeline: {len(self.rows())} samples of {self.json['interval_s'] * 1e6:g} us, {self.json['device']}>"
