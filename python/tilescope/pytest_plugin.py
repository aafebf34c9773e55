# SPDX-License-Identifier: Apache-2.0
"""Byte budgets in pytest. Loaded in every pytest run of an environment that has tilescope, so it imports nothing of it.

``byte_budget`` is a fixture::

    def test_forward(byte_budget):
        problem = tilescope.Problem.preset("llama3-8b")
        byte_budget.closed_form(problem, sm_l2_read_bytes="2.2 GB")
        byte_budget.simulate(problem, machine="h200", dram_read_bytes="5%")  # over the value that is stored

    def test_kernel(byte_budget):  # emulated on the CPU; Triton's by byte_budget.emulate_triton
        byte_budget.emulate("add.ptx", grid=8, block=128, args=[x, y, out, 1000], sm_l2_read_bytes="8 kB")

    def test_step(byte_budget):
        with byte_budget(dram_read_bytes="5%", filter="flash_fwd"):  # counted on a device
            step()

    @pytest.mark.byte_budget(dram_read_bytes="2.2 GB")  # of all that the test does on a device
    def test_all(): ...

A limit is an amount ("2.2 GB", "32 MiB", 1024), a multiple of the closed form ("x1.05"; of ``problem=`` where counted), or
a percentage over the value that ``pytest --byte-budget-update`` stored for this test in byte_budgets.json beside it, for
counted ones by chip. What formulas, simulation and emulation give is asserted on any machine. What hardware counters give needs a
device: without one such a test is skipped, with the reason, and never passes.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .counting import Count
    from .emulation import Emulation
    from .problem import Problem
    from .records import Record

STORED = "byte_budgets.json"
_MOST_SHARES = 5  # of passes, kernels or lines in a message
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    marker = item.get_closest_marker("byte_budget")
    if marker is None:
        return (yield)
    with _budget_of(item)(**marker.kwargs):
        return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--byte-budget-json")
    records = session.config.stash[_records]
    if path and records:
        joined = records[0]
        for record in records[1:]:
            joined = joined + record
        joined.save(path)


_records: pytest.StashKey[list[Any]] = pytest.StashKey()


class ByteBudget:
    """The fixture ``byte_budget`` of one test."""

    def __init__(self, config: pytest.Config, node_id: str, folder: Path) -> None:
        self._config = config
        self._node_id = node_id
        self._path = folder / STORED
        #: what the last block counted
        self.counts: Count | None = None
        #: what the last check found, by metric [B]
        self.found: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(
        self,
        *,
        filter: str = "",
        l2: str = "cold",
        device: Any = None,
        problem: Problem | None = None,
        passes: str = "fwd",
        **limits: Any,
    ) -> Iterator[ByteBudget]:
        """Holds what the CUDA work of a block moves to limits by metric of ``tilescope.counters()``.

        filter : only kernels whose names contain a match of this regular expression; they are counted one by one, which
            also names the largest. Without, the block is counted as a whole
        l2, device : as of `tilescope.count`. problem, passes : whose closed form "x1.05" is a multiple of

        Skips the test, with the reason, where nothing can be counted. ``.counts`` afterwards is the `Count`.
        """
        from . import MachineLacks, closed_form, count

        base = closed_form(problem, passes=passes).rows() if problem else []
        with contextlib.ExitStack() as held:
            try:
                by = "kernel" if filter else "block"
                counts = self.counts = held.enter_context(
                    count(",".join(limits), by=by, l2=l2, filter=filter, name=self._node_id, device=device)
                )
            except MachineLacks as lack:
                pytest.skip(f"no bytes can be counted here: {lack}")
            yield self
        chips = {machine["chip"] for machine in counts.record.json["machine"]}
        self._check("measured", counts.record, limits, base, " ".join(sorted(chips)))

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

    def emulate(self, *arguments: Any, **options: Any) -> Emulation:
        """Runs a kernel by `tilescope.emulate`, whose arguments these are, holds its bytes to limits by metric
        (sm_l2_read_bytes=..., sm_l2_write_bytes=...), of which "x1.05" is a multiple of the different sectors that it touches,
        and raises what it does wrong."""
        from . import emulate

        return self._emulated(emulate, arguments, options)

    def emulate_triton(self, *arguments: Any, **options: Any) -> Emulation:
        """The same of a Triton kernel, by `tilescope.emulate_triton`."""
        from . import emulate_triton

        return self._emulated(emulate_triton, arguments, options)

    def _emulated(self, run: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Emulation:
        limits = {name: options.pop(name) for name in list(options) if name.endswith(("_bytes", "_sectors"))}
        result: Emulation = run(*arguments, **options).check()
        must = {"read_bytes": result.must_read_bytes, "write_bytes": result.must_write_bytes}
        base = {f"closed_form.{at}_{way}": least for way, least in must.items() for at in ("sm_l2", "compulsory")}
        self._check("measured", result.record, limits, [base], f"{result.kernel} emulated", result.lines)
        return result

    def _check(
        self,
        account: str,
        record: Record,
        limits: dict[str, Any],
        base: list[dict[str, Any]] | None = None,
        source: str = "",
        lines: list[dict[str, Any]] | None = None,
    ) -> Record:
        """`base` has the closed forms that a limit may be a multiple of; `source` is part of a stored value's name; `lines`
        are those of a kernel's source, which are named where it exceeds a limit."""
        from .errors import ByteBudgetExceeded, bad_input
        from .tables import readable

        self._config.stash[_records].append(record)
        rows = record.rows()
        if not rows:
            raise bad_input("filter", "no kernel", "must match the name of a kernel that the block launches")
        for metric, limit in limits.items():
            name = f"{account}.{metric}"
            if name not in rows[0]:
                known = sorted(key.partition(".")[2] for key in rows[0] if key.startswith(f"{account}."))
                raise bad_input("byte_budget", metric, f"must be one of {', '.join(known)}")
            value = sum(row[name] for row in rows)
            self.found[metric] = value
            closed = rows if base is None else base
            allowed = self._allowed(f"{name} {source or rows[0]['kernel']}", limit, value, closed)
            if value <= allowed:
                continue
            of = [(row.get("pass", row["kernel"]), row[name]) for row in rows]
            if lines and (way := metric.removeprefix("sm_l2_")) in lines[0]:
                of = [(line["place"], line[way]) for line in lines if line[way]]
            largest = sorted(of, key=lambda share: -share[1])[:_MOST_SHARES]
            shares = ", ".join(f"{what} {readable(share, 'B')}" for what, share in largest)
            raise ByteBudgetExceeded(
                f"{name} is {readable(value, 'B')}, {readable(value - allowed, 'B')} more than {limit!r} allows "
                f"({readable(allowed, 'B')}); of these {shares}"
            )
        return record

    def _allowed(self, key: str, limit: Any, value: float, rows: list[dict[str, Any]]) -> float:
        from .errors import bad_input

        text = str(limit).strip()
        if match := re.fullmatch(r"x\s*([\d.]+)", text):
            if not rows:
                raise bad_input("byte_budget", text, "must stand with problem=, whose closed form it is a multiple of")
            closed = "closed_form." + key.partition(" ")[0].partition(".")[2]
            if closed not in rows[0]:
                closed = closed.replace("dram_", "compulsory_")
            if closed not in rows[0]:
                raise bad_input("byte_budget", text, f"must stand with bytes whose least is known, not with {key}")
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


def _budget_of(item: pytest.Item) -> ByteBudget:
    return ByteBudget(item.config, item.nodeid.rpartition("/")[2], Path(item.path).parent)


@pytest.fixture
def byte_budget(request: pytest.FixtureRequest) -> ByteBudget:
    """Holds the bytes of models, and of what runs on a device, to budgets; see tilescope.pytest_plugin."""
    return _budget_of(request.node)
