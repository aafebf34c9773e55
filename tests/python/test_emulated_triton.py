# SPDX-License-Identifier: Apache-2.0
"""Triton's own compilation, launched as its launcher would. PyTorch brings Triton; where neither is, these are skipped."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import tilescope as ts

pytestmark = pytest.mark.torch
pytest.importorskip("triton")
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "emulator" / "corpus"))
import cases


@pytest.fixture
def kernels():
    import triton_kernels

    return triton_kernels


@pytest.mark.parametrize("target", [80, 90])
def test_host_descriptors_become_tensor_maps(kernels, target):
    from triton.tools.tensor_descriptor import TensorDescriptor

    case = cases.TRITON["matmul_by_descriptors"](target)
    boxes = {"a": [64, 32], "b": [32, 64], "c": [64, 64]}
    args = {
        name: TensorDescriptor.from_tensor(ts.tensor(value), boxes[name]) if name in boxes else value
        for name, value in case.arguments.items()
    }
    result = ts.emulate_triton(
        kernels.matmul_by_descriptors, case.grid, target=target, races=True, **args, **case.constants
    )
    assert result.errors == []
    exact = case.expected["c"]
    assert np.abs(case.arguments["c"] - exact).max() < 1e-3 * np.abs(exact).max()
    assert (result.metrics["tma_store_bytes"] > 0) == (target == 90)
    assert 16 <= result.record.json["kernels"][0]["launch"]["registers"] <= 255


def test_how_ptxas_places_stores_is_known(kernels):
    """Of a length that 16 does not divide, each sector is stored in four parts."""
    x, out = np.ones(5000, np.float32), np.zeros(5000, np.float32)
    result = ts.emulate_triton(kernels.vector_add, 5, x, x, out, 5000, BLOCK=1024, num_warps=4)
    (note,) = [note for note in result.notes if "stores cover sectors in part" in note]
    assert "not known" not in note
    assert out.nbytes <= result.metrics["sm_l2_write_bytes"] <= 4 * out.nbytes


def test_specialisation_is_that_of_the_launcher(kernels):
    """A pointer that 16 divides, and a number that is 1, are compiled in: vectors of four where both are so."""
    x = np.ones(1024 + 8, np.float32)
    x = x[(-x.ctypes.data % 16) // 4 :]
    requests = {}
    for offset in (0, 1):
        part, out = x[offset : offset + 1024], np.zeros(1024, np.float32)
        result = ts.emulate_triton(kernels.vector_add, 1, part, part, out, 1024, BLOCK=1024, num_warps=1)
        assert (out == 2).all()
        requests[offset] = sum(line["requests"] for line in result.lines)
    assert requests[1] > requests[0]


def test_a_number_that_16_does_not_divide_is_named_where_it_costs_accesses(kernels):
    x = np.ones(1024, np.float32)
    for n, advised in ((1000, True), (1008, False), (1024, False)):
        result = ts.emulate_triton(kernels.vector_add, 1, x, x, np.zeros_like(x), n, BLOCK=1024)
        advice = [note for note in result.notes if note.startswith("advice: ")]
        assert bool(advice) == advised
        assert all(f"n = {n} is no multiple of 16" in note and "for 1008" in note for note in advice)
        assert ("advice: " in str(result)) == advised


def test_grids_may_be_functions_and_dtypes_named(kernels):
    x = cases.to_bf16(cases.draw(600))
    given = [ts.tensor(x, "bf16"), ts.tensor(x, "bf16"), ts.tensor(out := np.zeros_like(x), "bf16"), 600]
    ts.emulate_triton(kernels.bf16_chain, lambda meta: (-(-600 // meta["BLOCK"]),), *given, target=80, BLOCK=256)
    assert (out == 0).all()  # the larger of two equal numbers, less one of them


@gluon.jit
def sum_of_two(x, y, out, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(out + at, gl.load(x + at, mask=at < n) + gl.load(y + at, mask=at < n), mask=at < n)


def test_gluon_is_taken_as_triton_is():
    x, out = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    result = ts.emulate_triton(sum_of_two, (8,), x, x, out, 1000, BLOCK=128).check()
    assert (out == 2 * x).all()
    assert result.metrics["sm_l2_read_bytes"] == x.nbytes  # the second time it is in L1


def test_what_does_not_fit_is_one_sentence(kernels):
    x = np.zeros(64, np.float32)
    for call, words in (
        (lambda: ts.emulate_triton(kernels.vector_add, 1, x, x, BLOCK=64), "must fit"),
        (lambda: ts.emulate_triton(kernels.vector_add.fn, 1, x), "must be a function with @triton.jit"),
        (lambda: ts.emulate_triton(kernels.vector_add, (1, 2, 3, 4), x, x, x, 64, BLOCK=64), "one to three"),
        (lambda: ts.emulate_triton(kernels.vector_add, 1, x, x, x, 64, BLOCK=64, target=70), "target = 70"),
        (lambda: ts.tensor(x, "bf16"), "must be a type of 4 bytes"),
    ):
        with pytest.raises(ts.BadInput, match=words) as told:
            call()
        assert "\n" not in str(told.value)


def test_the_budget_fixture_takes_triton(kernels, byte_budget):
    x = np.ones(1024, np.float32)
    args = (kernels.vector_add, 1, x, x.copy(), np.zeros_like(x), 1024)
    byte_budget.emulate_triton(*args, BLOCK=1024, sm_l2_read_bytes=2 * x.nbytes, sm_l2_write_bytes="4096 B")
    with pytest.raises(ts.ByteBudgetExceeded):
        byte_budget.emulate_triton(*args, BLOCK=1024, sm_l2_read_bytes=x.nbytes)


def test_the_example_shows_its_sectors(capsys):
    runpy.run_path(str(ROOT / "examples/emulate/softmax.py"))
    printed = capsys.readouterr().out
    few, all_of_them = printed.split("1024 columns")
    assert "15.6 sectors a request where 4.0 suffice" in few
    assert "uncoalesced" not in all_of_them


def test_the_example_of_a_race_names_it(capsys):
    runpy.run_path(str(ROOT / "examples/emulate/column_sums.py"))
    assert "<race at column_sums.py:14: sums, " in capsys.readouterr().out
