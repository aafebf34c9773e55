# SPDX-License-Identifier: Apache-2.0
"""Kernels of the corpus on the emulated device: right to numpy's numbers, without false alarms; mutants and faults named."""

import gzip
import importlib.metadata
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import tilescope as ts

pytest_plugins = ["pytester"]

CORPUS = Path(__file__).resolve().parents[1] / "emulator" / "corpus"
sys.path.insert(0, str(CORPUS))
import cases

COMPILED = json.loads(gzip.decompress((CORPUS / "corpus.json.gz").read_bytes()))
TRITON = [name for name in COMPILED if ".sm_" in name]


def launch(name, case, **changes):
    """Runs a case. Races are looked for unless `changes` says otherwise."""
    made = COMPILED[name]
    options = {"grid": case.grid, "block": case.block, "args": case.arguments, "shared": case.shared, "races": True}
    if "warps" in made:
        ctas = int(np.prod(case.grid))
        scratch = [np.zeros(size * ctas, np.uint8) if size else None for size in made["scratch"]]
        given = [case.arguments[each] for each in made["arguments"]]
        options |= {"block": 32 * made["warps"], "shared": made["shared"], "args": [*given, *scratch]}
    options["max_dynamic_shared"] = options["shared"]
    options |= changes
    return ts.emulate(options.pop("ptx", made["ptx"]), **options)


def case_of(name):
    stem, _, target = name.partition(".sm_")
    return cases.TRITON[stem](int(target)) if target else cases.CUDA[name]()


@pytest.mark.parametrize("name", [*cases.CUDA, *TRITON])
def test_kernels_are_right_and_without_false_alarms(name):
    case = case_of(name)
    result = launch(name, case)
    assert result.completed
    assert result.errors == []
    assert cases.wrong_results(case) == {}


# Bytes that a formula gives: read and written. A length that 16 does not divide has Triton guard each element alone, so
# that each of four stores touches every sector, which L1 is modelled to merge where nobody says how ptxas placed them.
COUNTS = {
    "vector_add.sm_80": (2 * 5000 * 4, 5000 * 4),
    "vector_add.sm_90": (2 * 5000 * 4, 5000 * 4),
    "softmax.sm_90": (16 * 1000 * 4, 16 * 1000 * 4),
    "sort.sm_80": (3 * 256 * 4, 3 * 256 * 4),
    "scan_block": (1000 * 4, 1000 * 4),
    "pipelined_copy": (2 * 3 * 128 * 16, 2 * 3 * 128 * 16),
    "matmul_by_device_descriptors.sm_90": (4 * 3 * 2 * 64 * 32 * 2, 128 * 128 * 2),
}


@pytest.mark.parametrize("name", COUNTS)
def test_bytes_are_those_of_a_formula(name):
    metrics = launch(name, case_of(name), races=False).metrics
    if name.startswith("matmul"):  # the tensor maps that it makes cross too
        assert metrics["sm_l2_read_bytes"] - COUNTS[name][0] in range(12 * 128 + 1)
        assert metrics["tma_store_bytes"] == COUNTS[name][1]
        return
    assert (metrics["sm_l2_read_bytes"], metrics["sm_l2_write_bytes"]) == COUNTS[name]


def test_softmax_with_1000_of_1024_columns_touches_16_sectors_a_request():
    result = launch("softmax.sm_90", case_of("softmax.sm_90"), races=False)
    loads = max(result.lines, key=lambda line: line["read_bytes"] + line["l1_hit_bytes"])
    assert result.sectors_per_request(loads["place"]) > 15
    assert any(finding.kind == "uncoalesced" and loads["place"] in finding.places for finding in result.findings)


def test_what_a_kernel_prints_is_told():
    assert "thread 3 of a block has" in launch("prints_and_asserts", case_of("prints_and_asserts")).printed


def place_of(mark, source):
    lines = (CORPUS / source).read_text().splitlines()
    return f"{Path(source).name}:{1 + next(i for i, line in enumerate(lines) if mark in line)}"


FAULTS = {
    "warp_without_syncwarp": ("race", [cases.whole(0, 9, 32), np.zeros(1, np.int32)], 32),
    "one_row_too_many": ("out of bounds", [cases.draw(100), np.zeros(100, np.float32), 100], 128),
    "last_tile_not_awaited": ("race", [cases.whole(0, 9, 3, 128), np.zeros((3, 128), np.int32), 3], 32),
    "barrier_of_half_a_block": ("hang", [cases.whole(0, 9, 128), np.zeros(128, np.int32), 64], 128),
    "shared_used_again": ("race", [cases.draw(256), np.zeros(256, np.float32)], 128),
    "transposed_index": ("out of bounds", [cases.draw(8, 16), np.zeros((8, 16), np.float32), 8, 16], (16, 8)),
    "bins_beyond_the_array": ("out of bounds", [cases.whole(60, 100000, 128), np.zeros(64, np.int32)], 128),
    "partial_sums_of_a_cluster": ("race", [cases.draw(64), np.zeros(64, np.float32)], 32),
    "leaves_its_cluster": ("race", [cases.draw(128), np.zeros(128, np.float32)], 64),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named_with_their_line(name):
    kind, arguments, threads = FAULTS[name]
    grid = 2 if "cluster" in name else 1
    result = ts.emulate(COMPILED[name]["ptx"], grid=grid, block=threads, args=arguments, races=True)
    found = [finding for finding in result.errors if finding.kind == kind]
    assert found, result.findings
    assert place_of("FAULT", f"faults/{name}.cu") in [place for finding in found for place in finding.places]
    with pytest.raises(ts.CheckFailed, match=name):
        result.check()


# Faults of public reports, each in a few lines of its own, and its mended twin; the sources cite the reports.
REPORTED = {
    "mean_then_variance": ("race", 2, 128, lambda: [cases.draw(256), np.zeros(256, np.float32)]),
    "scales_behind_numbers": ("race", 1, 32, lambda: [cases.draw(16), np.zeros(16, np.float32), 16]),
    "store_without_proxy_fence": ("fault", 2, 128, lambda: [cases.draw(256), np.zeros(256, np.float32)]),
    "waits_for_its_own_copy": ("race", 1, 128, lambda: [cases.whole(0, 9, 3, 512), np.zeros((3, 512), np.int32), 3]),
    "one_lane_arrives": ("race", 1, 64, lambda: [cases.draw(32), np.zeros(32, np.float32)]),
    "length_of_another_view": (
        "out of bounds", 1, 32, lambda: [cases.whole(0, 9, 8), cases.whole(0, 9, 9), np.zeros(8, np.int32), 8, 2, 5],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTED)
def test_reported_faults_are_named_with_their_line_and_their_mended_twins_are_not(name):
    kind, grid, threads, arguments = REPORTED[name]
    launch = {"grid": grid, "block": threads, "races": True}
    for seed in (1, 2, 3):
        found = ts.emulate(COMPILED[name]["ptx"], args=arguments(), emulated_seed=seed, **launch).errors
        assert {each.kind for each in found} == {kind}
        assert place_of("FAULT", f"reported/{name}.cu") in [place for each in found for place in each.places]
        mended = ts.emulate(COMPILED[f"{name}.mended"]["ptx"], args=arguments(), emulated_seed=seed, **launch)
        assert mended.completed
        assert mended.errors == []


def test_races_between_blocks_are_named_with_their_line():
    ptx, x = COMPILED["smoothed_in_place"]["ptx"], cases.draw(256)
    launch = {"block": 128, "args": [x, x.size]}
    found = ts.emulate(ptx, grid=2, **launch, races=True).errors
    assert {finding.kind for finding in found} == {"race"}
    assert place_of("FAULT", "faults/smoothed_in_place.cu") in found[0].places
    assert "args[0], " in found[0].text and "CTA 1" in found[0].text
    assert ts.emulate(ptx, grid=2, **launch).errors == []


def test_sums_that_begin_with_what_nobody_wrote_are_named():
    ptx, x, out = COMPILED["adds_to_empty"]["ptx"], cases.draw(100, 3), np.empty(100, np.float32)
    launch = {"grid": 1, "block": 128, "args": [x, out, 100, 3], "races": True}
    assert ts.emulate(ptx, **launch).errors == []
    (found,) = [
        each for each in ts.emulate(ptx, **launch, uninitialised=[out]).findings if each.kind == "uninitialised"
    ]
    assert found.places == (place_of("FAULT", "faults/adds_to_empty.cu"),)
    with pytest.raises(ts.BadInput, match="must be arrays"):
        ts.emulate(ptx, **launch, uninitialised=[3])


# Text of the PTX, what stands in its place, and how it shows.
MUTANTS = {
    "matmul_tiled": ("bar.sync \t0;", "", "race"),
    "reduce_shuffle": ("bar.sync \t0;", "", "race"),
    "scan_block": ("bar.sync \t0;", "", "race"),
    "transpose_through_shared": ("bar.sync \t0;", "", "race"),
    "barrier_pipeline": ("mbarrier.try_wait.shared.b64", "mbarrier.test_wait.shared.b64", ""),
    "matmul_fp16.sm_90": ("fence.proxy.async", "// fence.proxy.async", "fault"),
    "matmul_fp16.sm_80": ("cp.async.wait_group", "// cp.async.wait_group", "race"),
    "attention_forward.sm_90": ("wgmma.wait_group.sync.aligned 0;", "", "fault"),
    "softmax.sm_80": ("bar.sync \t0;", "", "race"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_named(name):
    old, new, kind = MUTANTS[name]
    ptx = COMPILED[name]["ptx"]
    assert old in ptx
    result = launch(name, case_of(name), ptx=ptx.replace(old, new))
    if not kind:  # a wait that only asks: as right as the other
        assert result.errors == []
        return
    found = [finding for finding in result.findings if finding.kind == kind]
    assert found, result.findings
    assert all(finding.places for finding in found)


@pytest.mark.parametrize("name", ["vector_add.sm_90", "stencil", "matmul_by_device_descriptors.sm_90"])
def test_a_short_buffer_is_named(name):
    case = case_of(name)
    result_name = next(iter(case.expected))
    flat = case.arguments[result_name].reshape(-1)
    case.arguments[result_name] = flat[: flat.size - 100].copy()
    found = launch(name, case, races=False).errors
    assert [finding.kind for finding in found] == ["out of bounds"]
    assert found[0].places


def test_arguments_that_do_not_fit_are_one_sentence():
    case = case_of("vector_add.sm_80")
    ptx = COMPILED["vector_add.sm_80"]["ptx"]
    good = {"grid": 5, "block": 128, "args": [*case.arguments.values(), None, None]}

    def refusal(**changes):
        with pytest.raises(ts.BadInput) as told:
            ts.emulate(changes.pop("ptx", ptx), **(good | changes))
        assert "\n" not in str(told.value)
        return str(told.value)

    assert refusal(args=[1, 2]) == "args = 2 arguments: must be 6, as vector_add has parameters"
    assert "must name one of 1: vector_add" in refusal(kernel="subtract")
    assert refusal(grid=(1, 2, 3, 4)) == "grid = (1, 2, 3, 4): must be one to three positive whole numbers"
    assert "must be one to three" in refusal(block=0)

    def with_n(n):
        return [*good["args"][:3], n, None, None]

    n_is = "parameter 3 of vector_add (.u32)"
    assert refusal(args=with_n(1 << 40)) == f"args[3] = {1 << 40}: must fit {n_is}: -2147483648 ... 4294967295"
    assert refusal(args=with_n(5000.0)) == f"args[3] = 5000.0: must be a whole number, as {n_is} is"
    assert refusal(args=with_n(np.float32(3))) == f"args[3] = 3.0: must be a whole number, as {n_is} is"
    assert refusal(args=with_n(None)) == f"args[3] = None: must be a number, as {n_is} is no pointer"
    assert "must be an array, a number" in refusal(args=["x", *good["args"][1:]])
    assert "must be contiguous" in refusal(args=[np.zeros((9, 9))[::2, ::2], *good["args"][1:]])
    assert "must be PTX with a kernel" in refusal(ptx="nowhere.ptx")
    assert "0 ... 232448" in refusal(shared=-1)
    for chip, most in (("80", 166912), ("86", 101376), ("89", 101376), ("90a", 232448), ("100a", 232448)):
        for_chip = {"ptx": ptx.replace(".target sm_80", f".target sm_{chip}"), "max_dynamic_shared": most + 1}
        assert f"{most + 1} B of dynamic" in refusal(**for_chip, shared=most + 1)
        assert f"a CTA has {most} at most on sm_{chip}" in refusal(**for_chip, shared=most + 1)
    assert "did not ask for more than 49152 B" in refusal(shared=50000)
    assert "asked for 49999 B" in refusal(shared=50000, max_dynamic_shared=49999)
    assert "compiled for 128x1x1 (.reqntid)" in refusal(block=256)
    hours = ".version 8.0\n.target sm_90\n.entry k()\n{\nret;\n}\n"
    assert "its 2000000000 CTAs or clusters would take about" in refusal(ptx=hours, args=[], grid=2 * 10**9)
    unknown = ptx.replace("add.f32", "add.q7").replace("setp.lt", "setp.zz")
    assert "2 instructions that are not known" in refusal(ptx=unknown)


def test_the_record_is_what_other_commands_take(tmp_path):
    result = launch("transpose_plain", case_of("transpose_plain"), races=False)
    assert result.record.schema == "tilescope.kernels/1"
    assert result.record.rows()[0]["measured.sm_l2_write_bytes"] == result.metrics["sm_l2_write_bytes"]
    result.record.save(tmp_path / "record.json")
    assert ts.diff(result.record, ts.load(tmp_path / "record.json")).ok


def test_budgets_take_emulated_kernels(byte_budget):
    case = case_of("vector_add.sm_80")
    made = COMPILED["vector_add.sm_80"]
    args = [*case.arguments.values(), None, None]
    found = byte_budget.emulate(made["ptx"], grid=5, block=128, args=args, sm_l2_read_bytes="40 kB")
    assert found.metrics["sm_l2_read_bytes"] == 40000
    once = dict.fromkeys(("sm_l2_read_bytes", "dram_read_bytes", "sm_l2_write_bytes"), "x1")
    byte_budget.emulate(made["ptx"], grid=5, block=128, args=args, **once)
    # Four stores of each sector, with arithmetic between them: L1 merges none.
    apart = "\t\tFunction : vector_add\n"
    for store in range(4):
        apart += f"/*0000*/ STG.E desc[UR4][R4.64+{4 * store:#x}], R0 ;\n" + 4 * "/*0010*/ FADD R1, R1, R1 ;\n"
    with pytest.raises(ts.ByteBudgetExceeded, match="60 kB more than 'x1'"):
        byte_budget.emulate(made["ptx"], grid=5, block=128, args=args, sass=apart, sm_l2_write_bytes="x1")
    with pytest.raises(ts.BadInput, match="whose least is known"):
        byte_budget.emulate(made["ptx"], grid=5, block=128, args=args, l2_read_sectors="x1")
    with pytest.raises(ts.ByteBudgetExceeded, match="sm_l2_write_bytes is 20 kB.*of these triton_kernels.py:"):
        byte_budget.emulate(made["ptx"], grid=5, block=128, args=args, sm_l2_write_bytes=19999)
    with pytest.raises(ts.CheckFailed, match="out of bounds"):
        byte_budget.emulate(made["ptx"], grid=6, block=128, args=[*args[:3], 9999, None, None], sm_l2_read_bytes="1 MB")


def test_the_example_names_its_race(capsys):
    runpy.run_path(str(CORPUS.parents[2] / "examples/emulate/race.py"))
    assert "<race at transpose.cu:" in capsys.readouterr().out


def test_the_examples_budget_holds(pytester):
    pytester.copy_example(str(CORPUS.parents[2] / "examples/emulate"))
    plugins = importlib.metadata.entry_points(group="pytest11")
    installed = any(point.value == "tilescope.pytest_plugin" for point in plugins)
    words = () if installed else ("-p", "tilescope.pytest_plugin")
    pytester.runpytest_inprocess(*words, "test_budget.py").assert_outcomes(passed=1)
