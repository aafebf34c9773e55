# SPDX-License-Identifier: Apache-2.0
"""Byte budgets in pytest. Loaded in every pytest run of an environment that has tilescope, so it imports nothing of it.

``byte_budget`` is a fixture::

    def test_forward(byte_budget):
        problem = tilescope.Problem.preset("llama3-8b")
        byte_budget.closed_form(problem, sm_l2_read_bytes="2.2 GB")
        byte_budget.simulate(problem, machine="h200", dram_read_bytes="5%")  # over the value that is stored

A limit is an amount ("2.2 GB", "32 MiB", 1024), a multiple of the closed form ("x1.05"), or a percentage over the value
that ``pytest --byte-budget-update`` stored for this test in byte_budgets.json beside it. What formulas and
simulation give is asserted on any machine. What hardware counters give needs a device: without one such a test is skipped,
with the reason, and never passes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .problem import Problem
    from .records import Record

STORED = "byte_budgets.json"
_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tilescope")
    group.addoption("--byte-budget-update", action="store_true", help=f"store the bytes that tests found in {STORED}")
    group.addoption(
        "--byte-budget-missing",
        choices=("fail", "skip", "write"),
        default="fail",
        help="what a percentage does where nothing is stored for the test",
    )
    group.addoption(
        "--byte-budget-json", metavar="FILE", help="write the records of the run, for tilescope diff and report"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "byte_budget(metric='2.2 GB', ...): what the CUDA kernels of a test may move; skipped where nothing can be counted",
    )
    config.stash[_records] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("byte_budget"):
            item.add_marker(pytest.mark.skip(reason=_why_nothing_is_counted()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--byte-budget-json")
    records = session.config.stash[_records]
    if path and records:
        joined = records[0]
        for record in records[1:]:
            joined = joined + record
        joined.save(path)


_records: pytest.StashKey[list[Any]] = pytest.StashKey()


def _why_nothing_is_counted() -> str:
    from . import info

    lack = info()["device_lack"]
    return f"no bytes can be counted here: {lack or 'this build has no counters for Python'}"


class ByteBudget:
    """The fixture ``byte_budget`` of one test."""

    def __init__(self, config: pytest.Config, node_id: str, folder: Path) -> None:
        self._config = config
        self._node_id = node_id
        self._path = folder / STORED
        #: what the last check found, by metric [B]
        self.found: dict[str, float] = {}

    def __call__(self, **limits: Any) -> Any:
        """Would hold counted bytes to limits: skips the test where nothing can be counted."""
        pytest.skip(_why_nothing_is_counted())

    def closed_form(
        self, problem: Problem, kernel: str = "cpu:flash2", *, passes: str = "fwd", **limits: Any
    ) -> Record:
        """Holds the closed form, summed over the passes, to limits by metric: sm_l2_read_bytes, ..."""
        from . import closed_form

        return self._check("closed_form", closed_form(problem, kernel, passes=passes), limits)

    def simulate(
        self, problem: Problem, kernel: str = "cpu:flash2", *, machine: str = "h200", passes: str = "fwd", **limits: Any
    ) -> Record:
        """Holds simulated bytes, summed over the passes, to limits by metric: dram_read_bytes, ..."""
        from . import simulate

        return self._check("simulated", simulate(problem, kernel, machine=machine, passes=passes), limits)

    def _check(self, account: str, record: Record, limits: dict[str, Any]) -> Record:
        from .errors import ByteBudgetExceeded, bad_input
        from .records import readable

        self._config.stash[_records].append(record)
        rows = record.rows()
        for metric, limit in limits.items():
            name = f"{account}.{metric}"
            if name not in rows[0]:
                known = sorted(key.partition(".")[2] for key in rows[0] if key.startswith(f"{account}."))
                raise bad_input("byte_budget", metric, f"must be one of {', '.join(known)}")
            value = sum(row[name] for row in rows)
            self.found[metric] = value
            allowed = self._allowed(f"{name} {rows[0]['kernel']}", limit, value, rows)
            if value <= allowed:
                continue
            shares = ", ".join(f"{row['pass']} {readable(row[name], 'B')}" for row in rows)
            raise ByteBudgetExceeded(
                f"{name} is {readable(value, 'B')}, {readable(value - allowed, 'B')} more than {limit!r} allows "
                f"({readable(allowed, 'B')}); of these {shares}"
            )
        return record

    def _allowed(self, key: str, limit: Any, value: float, rows: list[dict[str, Any]]) -> float:
        from .errors import bad_input

        text = str(limit).strip()
        if match := re.fullmatch(r"x\s*([\d.]+)", text):
            closed = key.partition(" ")[0].replace("simulated.", "closed_form.")
            if closed not in rows[0]:
                closed = closed.replace("dram_", "compulsory_")
            return float(match[1]) * float(sum(row[closed] for row in rows))
        if match := re.fullmatch(r"([\d.]+)\s*%", text):
            return self._stored(key, value) * (1 + float(match[1]) / 100)
        if match := re.fullmatch(r"([\d.]+(?:e\d+)?)\s*(\w*)", text):
            unit = match[2] or "B"
            if unit in _UNITS:
                return float(match[1]) * _UNITS[unit]
        raise bad_input("byte_budget", text, "must be as in '2.2 GB', 'x1.05' or '5%'")

    def _stored(self, key: str, value: float) -> float:
        stored: dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}
        missing = self._config.getoption("--byte-budget-missing")
        of_test = stored.setdefault(self._node_id, {})
        if self._config.getoption("--byte-budget-update") or (key not in of_test and missing == "write"):
            of_test[key] = value
            self._path.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
        elif key not in of_test:
            told = f"nothing is stored for {key} in {self._path}; pytest --byte-budget-update stores it"
            pytest.skip(told) if missing == "skip" else pytest.fail(told, pytrace=False)
        return float(of_test[key])


@pytest.fixture
def byte_budget(request: pytest.FixtureRequest) -> ByteBudget:
    """Holds the bytes of models to budgets; see tilescope.pytest_plugin."""
    path = Path(request.node.path)
    return ByteBudget(request.config, request.node.nodeid.rpartition("/")[2], path.parent)
