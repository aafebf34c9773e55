# SPDX-License-Identifier: Apache-2.0
"""Counting on a fake driver, where every counter is 64; and where nothing can be counted: what is missing is said, and
nothing is left held."""

import json

import pytest
import tilescope as ts

without_counters = pytest.mark.skipif(ts.info()["counters_lack"] is None, reason="this machine has counters")


@without_counters
def test_what_is_missing_is_said_before_the_block_runs():
    for _ in range(2):  # the second is not told that the first still counts
        with pytest.raises(ts.MachineLacks):
            with ts.count():
                raise AssertionError("never run")

    @ts.counted
    def function():
        """What it does."""

    with pytest.raises(ts.MachineLacks):
        function()
    assert function.counts == [] and function.__doc__ == "What it does."
    with pytest.raises(ts.MachineLacks):
        ts.measure(function)


def test_refusals():
    with pytest.raises(ts.BadInput, match="l2"):
        with ts.count(l2="tepid"):
            pass
    with pytest.raises(ts.BadInput, match="launches"):
        ts.measure(print, launches=0)
    with pytest.raises(ts.BadInput, match="after the block"):
        ts.count().record  # noqa: B018
    with pytest.raises(ts.BadInput, match="by"):
        ts.count(by="thread")
    with pytest.raises(ts.BadInput, match="filter"):
        ts.count(filter="flash")
    for device in ("cpu", "cuda:x", "1"):
        with pytest.raises(ts.BadInput, match="device"):
            ts.count(device=device).__enter__()
    with pytest.raises(TypeError, match="list of words"):
        ts.profile_command("python3 my_script.py")
    with pytest.raises(ts.BadInput, match="interval_us"):
        ts.timeline(print, interval_us=1)


def test_a_block_is_counted_as_a_whole_and_gives_the_counters_back(on_fakes, fakes):
    told = on_fakes("""
with ts.count(name="step") as c:
    launch(), launch()
(row,) = c.rows()
print(row["kernel"], row["measured.sm_l2_read_bytes"], row["measured.dram_read_bytes"], c.record.schema)
""")
    assert told.split() == ["step", "64", "64", "tilescope.kernels/1"]
    with open(fakes["TILESCOPE_FAKE_LOG"]) as log:
        assert log.read().split("\n")[:2] == ["enable 0", "disable 0"]


@pytest.mark.parametrize("device", ["1", "'cuda:1'"])
def test_the_device_that_is_asked_for_is_counted(on_fakes, fakes, device):
    on_fakes(f"with ts.count(device={device}): launch()")
    with open(fakes["TILESCOPE_FAKE_LOG"]) as log:
        assert log.read().split("\n")[:2] == ["enable 1", "disable 1"]


def test_a_kernels_name_leaves_room_for_its_bytes(on_fakes):
    told = on_fakes("""
with ts.count(by="kernel") as c:
    launch("void flash_fwd<" + "Traits<128, 128>, " * 20 + ">")
print(c)
""")
    assert "flash_fwd<Traits<128" in told and max(map(len, told.splitlines())) < 260


def test_kernels_are_counted_one_by_one_from_all_threads(on_fakes):
    told = on_fakes("""
import threading
launch("before")
with ts.count(by="kernel", filter="flash") as c:
    launch("flash_fwd"), launch("other")
    thread = threading.Thread(target=launch, args=("flash_bwd",))
    thread.start(), thread.join()
launch("after")
print([(row["kernel"], row["grid"], row["measured.dram_read_bytes"]) for row in c.rows()])
with ts.count(by="kernel") as again:
    launch("again")
print([row["kernel"] for row in again.rows()], again.record.json["machine"][0]["chip"])
""")
    first, second = told.splitlines()
    assert eval(first) == [("flash_fwd", (7, 1, 1), 64), ("flash_bwd", (7, 1, 1), 64)]
    assert second == "['again'] GH100"


def test_a_function_returns_what_it_returns_and_keeps_its_counts(on_fakes):
    told = on_fakes("""
@ts.counted(by="kernel")
def step(name, fail=False):
    "What it does."
    launch(name)
    if fail:
        raise KeyError(name)
    return name
print(step("kernel_a"), step("kernel_b"), len(step.counts), [c.rows()[0]["kernel"] for c in step.counts], step.__doc__)
try:
    step("kernel_c", fail=True)
except KeyError as error:
    print("through", error, len(step.counts))
print(step("kernel_d"), len(step.counts))
""")
    assert told.splitlines() == [
        "kernel_a kernel_b 2 ['kernel_a', 'kernel_b'] What it does.",
        "through 'kernel_c' 2",
        "kernel_d 3",
    ]


def test_measure_repeats_and_takes_times(on_fakes):
    told = on_fakes("""
record = ts.measure(launch, "a", metrics="dram_read_bytes", launches=3)
(row,) = record.rows()
print(row["kernel"], row["measured.dram_read_bytes"], len(names) > 3)
""")
    assert told.split() == ["launch", "64", "True"]


def test_measure_leaves_the_times_out_on_demand(on_fakes):
    told = on_fakes("""
both = ts.measure(launch, "a", metrics="dram_read_bytes", launches=3).json["kernels"][0]
calls = len(names)
(kernel,) = ts.measure(launch, "a", metrics="dram_read_bytes", launches=3, time=False).json["kernels"]
print("time" in both, "time" in kernel, kernel["measured"]["dram_read_bytes"], kernel["name"], len(names) - calls)
""")
    assert told.split() == ["True", "False", "64", "launch", "6"]  # a warm run and a pass, three times


@pytest.mark.skipif(ts.info()["counters_lack"] is not None, reason="this machine has no counters")
def test_measure_without_times_counts_the_same_on_a_device():
    torch = pytest.importorskip("torch")
    x = torch.ones(1 << 22, device="cuda")
    (both,) = ts.measure(torch.add, x, x, launches=3).rows()
    (alone,) = ts.measure(torch.add, x, x, launches=3, time=False).rows()
    assert both["time.median_s"] > 0 and "time.median_s" not in alone
    assert alone["measured.sm_l2_read_bytes"] == pytest.approx(both["measured.sm_l2_read_bytes"], rel=1e-3)


def test_blocks_do_not_nest_and_an_exception_leaves_none_open(on_fakes):
    told = on_fakes("""
try:
    with ts.count():
        with ts.count():
            pass
except ts.BadInput as error:
    print(error.field)
with ts.count() as c:
    launch()
print(len(c.rows()))
""")
    assert told.split() == ["count", "1"]


@pytest.mark.parametrize(
    ("refusal", "by", "reason"),
    [
        ("cuptiSubscribe=39", "kernel", "subscriber"),
        ("cuptiProfilerGetCounterAvailability=35", "block", "permission"),
        ("cuptiProfilerGetCounterAvailability=35", "kernel", "permission"),
    ],
)
def test_a_refusal_says_its_reason_and_the_next_block_may_count(on_fakes, refusal, by, reason):
    told = on_fakes(
        f"""
import os
for _ in range(2):
    try:
        with ts.count(by={by!r}):
            print("never run")
    except ts.CountersUnavailable as error:
        print(error.reason)
del os.environ["TILESCOPE_FAKE_REFUSAL"]
with ts.count(by={by!r}) as c:
    launch()
print(len(c.rows()))
""",
        TILESCOPE_FAKE_REFUSAL=refusal,
    )
    assert told.split() == [reason, reason, "1"]


def test_a_forked_child_leaves_its_parents_block_alone(on_fakes):
    told = on_fakes("""
import os
with ts.count() as c:
    launch()
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
if not child:
    os._exit(3)
print(os.waitstatus_to_exitcode(status), len(c.rows()))
""")
    assert told.split() == ["3", "1"]


def test_counted_kernels_become_a_trace(on_fakes, tmp_path):
    on_fakes(f"""
with ts.count(by="kernel") as c:
    launch("kernel_a"), launch("kernel_b")
c.record.trace({str(tmp_path / "trace.json")!r})
""")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kernels = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in kernels] == ["kernel_a", "kernel_b"]
    assert kernels[0]["ts"] + kernels[0]["dur"] <= kernels[1]["ts"] and kernels[0]["dur"] > 0  # Perfetto's rule
    assert kernels[0]["args"]["measured.dram_read_bytes"] == 64
    assert {event["ph"] for event in events} == {"X", "M", "C"}
    with pytest.raises(ts.BadInput, match="times"):
        ts.closed_form(ts.Problem(seqlen_q=64, head_dim=64)).trace(tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


def test_a_timeline_becomes_a_trace(tmp_path):
    sample = dict.fromkeys(("dram_read_share", "dram_write_share", "tensor_share", "sm_active_share"), 0.25)
    sample |= {"start_s": 1e-3, "length_s": 1e-4, "dram_read_bytes": 1e6, "dram_write_bytes": 0}
    ts.Timeline({"device": "a GPU", "interval_s": 1e-4, "samples": [sample]}).trace(tmp_path / "trace.json")
    _, rates, use = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert rates["ts"] == 1000 and rates["args"] == {"read": 10.0, "write": 0.0}
    assert use["args"] == {"DRAM": 50.0, "tensor pipes": 25.0, "SMs with work": 25.0}


def test_a_timeline_waits_for_what_the_device_writes_late(on_fakes):
    told = on_fakes("""
samples = ts.timeline(launch, interval_us=100)
print([(round(1e6 * row["start_s"]), round(1e6 * row["length_s"])) for row in samples.rows()])
""")
    assert eval(told) == [(0, 160), (160, 160), (320, 160), (480, 160)]


def test_a_timeline_without_a_sample_is_refused(on_fakes):
    told = on_fakes(
        """
try:
    ts.timeline(launch)
except ts.MachineLacks as lack:
    print(lack)
""",
        TILESCOPE_FAKE_SILENT="1",
    )
    assert "gave no sample" in told


def test_a_command_is_counted_kernel_by_kernel(on_fakes):
    told = on_fakes("""
import os
program = os.environ["TILESCOPE_LIBRARIES"] + "/tests/fake_cuda_program"
record = ts.profile_command([program, "plain"], "dram_read_bytes")
print(record.json["exit_code"], [(row["kernel"], row["measured.dram_read_bytes"]) for row in record.rows()])
""")
    assert told.splitlines()[-1] == "5 [('fake_kernel', 64), ('fake_kernel', 64)]"


def test_under_the_profiler_there_is_nothing_left_to_count(on_fakes):
    told = on_fakes("""
import sys
inside = "import tilescope as ts\\ntry:\\n    ts.count().__enter__()\\nexcept ts.CountersUnavailable as e: print(e.reason)"
record = ts.profile_command([sys.executable, "-c", inside], "dram_read_bytes")
""")
    assert told.split() == ["busy"]
