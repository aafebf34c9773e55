# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin, in pytest runs of its own."""

import importlib.metadata
import json

import pytest

pytest_plugins = ["pytester"]

# An installed package is found by its entry point, and pytest takes no plugin twice.
INSTALLED = any(point.value == "tilescope.pytest_plugin" for point in importlib.metadata.entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "tilescope.pytest_plugin")

TEST = """
import pytest, tilescope as ts
problem = ts.Problem(seqlen_q=1024, head_dim=64)

def test_model(byte_budget):
    byte_budget.closed_form(problem, sm_l2_read_bytes={limit!r})
    assert byte_budget.found["sm_l2_read_bytes"] > 0
"""


@pytest.fixture
def run(pytester):
    def in_a_process(*options, limit="1 GB", source=TEST):
        pytester.makepyfile(source.format(limit=limit))
        return pytester.runpytest_subprocess(*PLUGIN, *options)

    return in_a_process


def test_a_budget_decides_the_exit_status(run):
    assert run(limit="1 GB").ret == 0
    failed = run(limit="1 kB")
    assert failed.ret == 1
    failed.stdout.fnmatch_lines(["*ByteBudgetExceeded: closed_form.sm_l2_read_bytes is * more than '1 kB' allows*"])
    assert run(limit="x1").ret == 0 and run(limit="x0.99").ret == 1
    assert run(limit="many").ret == 1


def test_a_stored_value_is_written_only_when_asked_for(run, pytester):
    assert run(limit="5%").ret == 1
    assert not (pytester.path / "byte_budgets.json").exists()
    assert run("--byte-budget-missing=skip", limit="5%").parseoutcomes() == {"skipped": 1}
    assert run("--byte-budget-update", limit="5%").ret == 0
    assert run(limit="5%").ret == 0
    path = pytester.path / "byte_budgets.json"
    stored = json.loads(path.read_text())
    ((test, (key,)),) = [(test, list(values)) for test, values in stored.items()]
    stored[test][key] /= 2
    path.write_text(json.dumps(stored))
    assert run(limit="5%").ret == 1


COUNTED = """
import ctypes, pytest
cuda = ctypes.CDLL("libcuda.so.1")
def launch(name):
    assert cuda.cuLaunchKernel(ctypes.c_char_p(name), 7, 1, 1, 32, 1, 1, 0, None, None, None) == 0

@pytest.mark.byte_budget(dram_read_bytes={limit!r})
def test_marked():
    launch(b"a")

def test_context(byte_budget):
    with byte_budget(dram_read_bytes={limit!r}, filter="flash"):
        launch(b"a"), launch(b"flash_fwd"), launch(b"flash_bwd")
    assert byte_budget.found == {{"dram_read_bytes": 128}} and len(byte_budget.counts.rows()) == 2
"""


def test_counted_bytes_are_held_to_budgets(run, fakes, monkeypatch, pytester):
    for name in ("LD_LIBRARY_PATH", "TILESCOPE_CUPTI", "TILESCOPE_FAKE_COUNTERS"):
        monkeypatch.setenv(name, fakes[name])
    assert run(source=COUNTED, limit="128 B").parseoutcomes() == {"passed": 2}
    failed = run(source=COUNTED, limit="100 B")
    assert failed.parseoutcomes() == {"passed": 1, "failed": 1}
    failed.stdout.fnmatch_lines(["*measured.dram_read_bytes is 128 B, 28 B more than '100 B' allows*flash_*64 B*"])
    assert run("--byte-budget-update", source=COUNTED, limit="5%").ret == 0
    assert "measured.dram_read_bytes GH100" in (pytester.path / "byte_budgets.json").read_text()
    assert run(source=COUNTED, limit="5%").ret == 0


def test_what_cannot_be_counted_is_skipped_with_the_reason(run):
    import tilescope as ts

    if ts.info()["counters_lack"] is None:
        pytest.skip("this machine has counters")
    source = """
import pytest

@pytest.mark.byte_budget(dram_read_bytes="1 GB")
def test_marked():
    raise AssertionError("never run")

def test_context(byte_budget):
    with byte_budget(dram_read_bytes={limit!r}):
        raise AssertionError("never run")
"""
    result = run("-rs", source=source)
    assert result.parseoutcomes() == {"skipped": 2}
    result.stdout.fnmatch_lines(["*no bytes can be counted here*"])


def test_records_of_the_run_are_written(run, pytester):
    assert run("--byte-budget-json", "all.json").ret == 0
    import tilescope as ts

    assert len(ts.load(pytester.path / "all.json")) == 1


def test_it_costs_nothing_where_it_is_not_used(pytester):
    pytester.makepyfile("import sys\ndef test(): assert not {'numpy', 'pandas', 'torch'} & set(sys.modules)")
    assert pytester.runpytest_subprocess(*PLUGIN).ret == 0
