# SPDX-License-Identifier: Apache-2.0
"""What differs between two records, and reports on several."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import CheckFailed, bad_input
from .tables import frame_of, html_table, readable, text_table

if TYPE_CHECKING:
    import pandas


class Diff:
    """What moved between two records."""

    def __init__(self, text: str, ok: bool) -> None:
        self.json: dict[str, Any] = json.loads(text)
        self.ok = ok  #: whether a gate would let the new record pass

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each number that moved."""
        return [
            {"kernel": run["kernel"], "problem": run.get("problem"), **change}
            for run in self.json["runs"]
            for change in run["changes"]
        ]

    def frame(self) -> pandas.DataFrame:
        """The rows as a pandas.DataFrame."""
        return frame_of(self.rows())

    def check(self) -> None:
        """Raises CheckFailed where something grew beyond its budget, or is gone."""
        if not self.ok:
            raise CheckFailed(str(self))

    def _summary(self) -> list[dict[str, str]]:
        table = []
        for row in self.rows():
            base, new = row["base"], row["new"]
            change = f"{100 * (new - base) / base:+.3g} %" if isinstance(base, (int, float)) and base else ""
            table.append(
                {
                    "kernel": row["kernel"],
                    "problem": row["problem"] or "",
                    "metric": row["metric"],
                    "where": row["where"],
                    "base": readable(base, row["unit"]),
                    "new": readable(new, row["unit"]),
                    "change": change,
                    "verdict": "REGRESSION" if row["regressed"] else "",
                }
            )
        return table

    def _verdict(self) -> str:
        gone = [run["kernel"] for run in self.json["gone_runs"]]
        gone += [metric for run in self.json["runs"] for metric in run["gone"]]
        regressions = self.json["regressions"]
        told = f"{regressions} beyond the budget" if regressions else "no regression"
        return told + (f"; gone: {', '.join(gone)}" if gone else "")

    def __str__(self) -> str:
        table = text_table(self._summary())
        return (table + "\n" if table else "") + self._verdict()

    def __repr__(self) -> str:
        return f"<Diff: {self._verdict()}>"

    def _repr_html_(self) -> str:
        return html_table(self._summary()) + f"<p>{html.escape(self._verdict())}</p>"


class Figure:
    """A plot as SVG; a notebook shows it."""

    def __init__(self, name: str, svg: str) -> None:
        self.name = name
        self.svg = svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the SVG document."""
        Path(path).write_text(self.svg)

    def __repr__(self) -> str:
        return f"<Figure {self.name}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        # As an image, not inlined: several inlined SVGs share ids and spoil each other.
        return {"image/svg+xml": self.svg, "text/plain": repr(self)}


class Report:
    """Tables and figures on records: a page, the same as Markdown, and each figure by its name."""

    def __init__(self, files: list[tuple[str, str]]) -> None:
        self._files = files
        by_path = dict(files)
        self.html = by_path["report.html"]
        self.markdown = by_path["report.md"]
        self.figures = {Path(path).stem: Figure(Path(path).stem, text) for path, text in files if path.endswith(".svg")}

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Writes report.html, report.md and figures/*.svg into `folder`, which is made; returns their paths."""
        paths = []
        for relative, text in self._files:
            path = Path(folder) / relative
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            except OSError as error:
                raise bad_input("folder", str(folder), f"cannot be written ({error.strerror})") from None
            paths.append(path)
        return paths

    def __repr__(self) -> str:
        return f"<Report: {len(self.figures)} figures>"

    def _repr_html_(self) -> str:
        # Its style must not reach the notebook's own page.
        return (
            '<iframe sandbox style="width:100%;height:40em;border:1px solid #ccc" '
            f'srcdoc="{html.escape(self.html, quote=True)}"></iframe>'
        )
