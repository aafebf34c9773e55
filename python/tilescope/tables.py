# SPDX-License-Identifier: Apache-2.0
"""Rows as tables: a data frame, text, HTML; and numbers as people read them."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any

from . import _native
from .errors import MissingPackage

if TYPE_CHECKING:
    import pandas

_WINDOW = 100  # columns of text that fit one
_FEW = 5  # rows that may stand side by side
_HEADING = 12  # letters of a piece of a heading


def frame_of(rows: list[dict[str, Any]], without: str = ".rows()") -> pandas.DataFrame:
    """Rows as a pandas.DataFrame; whole numbers stay whole (Int64), and what is absent is <NA>, never 0.

    without : what tells the same where there is no pandas
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingPackage(f"pandas is missing: pip install tilescope[frame]; {without} needs nothing") from None
    frame = pd.DataFrame(rows)
    for column in frame.columns:
        values = [row.get(column) for row in rows]
        present = [value for value in values if value is not None]
        if present and all(isinstance(value, int) and not isinstance(value, bool) for value in present):
            frame[column] = pd.array(values, dtype="Int64")
    return frame


def catalogue(what: str) -> pandas.DataFrame:
    """What `python -m tilescope list` lists under this name."""
    return frame_of(json.loads(_native.catalogue(what)), f"`python -m tilescope list {what}`")


def readable(value: Any, unit: str) -> str:
    """Four significant digits with a prefix of 10^3: ``4.362 GB``."""
    if not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    if unit not in ("B", "FLOP"):
        return f"{value:.4g} {unit}".strip()
    for power, prefix in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 10**power:
            return f"{value / 10**power:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def _columns(rows: list[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def text_table(rows: list[dict[str, str]]) -> str:
    """A line for each row where that fits a window; else a line for each column, if the rows are few; else with headings
    of several lines, which read downwards."""
    columns = _columns(rows)
    if not rows:
        return ""
    cells = [[row.get(column, "") for column in columns] for row in rows]
    flat = _aligned([columns, *cells])
    if _width(flat) <= _WINDOW:
        return flat
    stood = _aligned([list(line) for line in zip(columns, *cells)])
    if len(rows) <= _FEW and _width(stood) <= _WINDOW:
        return stood
    headings = [_broken(column) for column in columns]
    height = max(map(len, headings))
    padded = [[""] * (height - len(heading)) + heading for heading in headings]
    return _aligned([*map(list, zip(*padded)), *cells])


def _aligned(lines: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def _width(text: str) -> int:
    return max(map(len, text.splitlines()))


def _broken(heading: str) -> list[str]:
    """A name in pieces that end with a dot or an underscore."""
    pieces = [""]
    for word in re.findall(r"[^._]+[._]?|[._]", heading):
        if pieces[-1] and len(pieces[-1] + word) > _HEADING:
            pieces.append("")
        pieces[-1] += word
    return pieces


def html_table(rows: list[dict[str, str]]) -> str:
    """The same for a notebook."""

    def line(tag: str, cells: list[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    columns = _columns(rows)
    body = "".join(line("td", [row.get(column, "") for column in columns]) for row in rows)
    return f"<table><thead>{line('th', columns)}</thead><tbody>{body}</tbody></table>"
