# SPDX-License-Identifier: Apache-2.0
"""What holds counters against the emulated device's word, on counters that are made up."""

import gzip
import json
import sys
from pathlib import Path

import pytest

EMULATED = Path(__file__).resolve().parents[2] / "reports" / "emulated"
sys.path.insert(0, str(EMULATED))
import compare
import ncu


def kept(name):
    return json.loads(gzip.decompress((EMULATED / "second" / name).read_bytes()))


FORESEEN = kept("predicted.json.gz")


def counted(**changes):
    """Counters that say what was foreseen, but for metrics of kernels that are changed: name=(metric, by how much)."""
    kernels = []
    for kernel in FORESEEN["kernels"]:
        measured = dict(kernel["measured"]) | {"dram_read_bytes": kernel["must_read_bytes"]}
        for metric, more in changes.get(kernel["name"], ()):
            measured[metric] = measured.get(metric, 0) + more
        grid = {"grid": kernel["launch"]["grid"]}
        kernels.append({"name": kernel["name"], "launch": grid, "measured": measured})
    return {"when": "2026-11-26T00:00:00Z", "machine": [{"name": "made up"}], "kernels": kernels}


def failures(**changes):
    return [row for row in compare.of_kernels(FORESEEN, counted(**changes)) if row["failed"]]


def test_counters_that_say_what_was_foreseen_pass():
    assert failures() == []
    assert not any(row["failed"] for row in compare.of_dram(FORESEEN, counted()))


def test_what_l1_has_no_part_in_must_come_within_half_a_percent():
    written = next(k for k in FORESEEN["kernels"] if k["name"] == "matmul_fp16")["measured"]["sm_l2_write_bytes"]
    assert failures(matmul_fp16=[("sm_l2_write_bytes", 0.004 * written)]) == []
    (row,) = failures(matmul_fp16=[("sm_l2_write_bytes", 0.006 * written)])
    assert (row["name"], row["way"], row["by_l1"]) == ("matmul_fp16", "write", False)
    assert compare.of_kernels(FORESEEN, counted(matmul_fp16=[("sm_l2_write_bytes", 0.006 * written)]))[0] == row


def test_what_l1_has_a_part_in_must_come_within_15_percent():
    written = next(k for k in FORESEEN["kernels"] if k["name"] == "vector_add")["measured"]["sm_l2_write_bytes"]
    assert failures(vector_add=[("sm_l2_write_bytes", -0.14 * written)]) == []
    (row,) = failures(vector_add=[("sm_l2_write_bytes", -0.16 * written)])
    assert row["by_l1"]


def test_spills_that_were_counted_are_taken_off_and_said():
    spilled = [("sm_l2_write_bytes", 40000), ("local_store_bytes", 40000)]
    assert failures(matmul_fp16=spilled) == []
    names = [row["name"] for row in compare.of_kernels(FORESEEN, counted(matmul_fp16=spilled))]
    assert "matmul_fp16, without 40000 B of spills" in names
    assert failures(matmul_fp16=spilled[:1]) != []


def test_what_was_counted_and_timed_is_joined_into_one_file(tmp_path):
    (tmp_path / "kernels.json").write_text(json.dumps(counted()))
    for number in range(11):
        (tmp_path / f"rung-{number}.json").write_text(json.dumps(counted() | {"when": f"{number}"}))
    (tmp_path / "memcheck.txt").write_text(
        "========= COMPUTE-SANITIZER\nadd: right, 0.000250 s\nmul: WRONG: x, 0.1 s\n"
    )
    compare.join(tmp_path)
    (joined,) = compare.records(tmp_path, "*")
    assert compare.of_kernels(FORESEEN, joined["kernels"]) == compare.of_kernels(FORESEEN, counted())
    assert [each["when"] for each in joined["rungs"]] == [f"{number}" for number in range(11)]
    assert joined["seconds"] == {"memcheck": {"add": 0.00025}}


def test_sums_that_are_as_foreseen_stand_in_a_sentence():
    rows = compare.of_kernels(FORESEEN, counted(vector_add=[("sm_l2_write_bytes", -9e6)]))
    told = compare.table(rows)
    assert told.count("| vector_add | write |") == 1 and "**" in told
    assert f"{len(rows) - 1} sums: " in told and "softmax_1024 read and write" in told


def test_what_ncu_wrote_is_read_as_the_profilers_record():
    record = kept("measured.json.gz")["kernels"]
    factors = dict(next(iter(terms.items())) for terms in ncu.COUNTERS.values())
    sums = {next(iter(terms)): metric for metric, terms in ncu.COUNTERS.items()}
    names = sorted(counter for terms in ncu.COUNTERS.values() for counter in terms)

    def counter(kernel, name):
        return kernel["measured"].get(sums.get(name, ""), 0) / factors.get(name, 1)

    lines = ["==PROF== Connected", ",".join(f'"{name}"' for name in ["ID", "Kernel Name", "Grid Size", *names])]
    lines.append(",".join('""' for _ in range(3 + len(names))))
    for number, kernel in enumerate(record["kernels"]):
        grid = "({}, {}, {})".format(*kernel["launch"]["grid"])
        cells = [str(number), kernel["name"], grid, *(f"{counter(kernel, name):,.0f}" for name in names)]
        lines += [",".join(f'"{cell}"' for cell in cells), f"{kernel['name']}: right, 0.001 s"]
    read = ncu.record_of("\n".join(lines), "NVIDIA H200")
    assert read["machine"][0]["name"] == "NVIDIA H200"
    assert len(read["kernels"]) == len(record["kernels"])
    for ours, theirs in zip(read["kernels"], record["kernels"], strict=True):
        assert (ours["name"], ours["launch"]["grid"]) == (theirs["name"], theirs["launch"]["grid"])
        for way in ("read", "write"):
            assert ours["measured"][f"sm_l2_{way}_bytes"] == pytest.approx(theirs["measured"][f"sm_l2_{way}_bytes"])
    assert compare.of_kernels(FORESEEN, read) == compare.of_kernels(FORESEEN, record)
    with pytest.raises(SystemExit, match="no table"):
        ncu.record_of("==ERROR== nothing was profiled", "")
