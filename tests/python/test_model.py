# SPDX-License-Identifier: Apache-2.0
"""Formulas and simulation: the same numbers as the command line's."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tilescope as ts
from tilescope import program

PROBLEM = ts.Problem(seqlen_q=512, heads=4, head_dim=64, causal=True)
REPORTS = Path(__file__).parents[2] / "reports"


def test_closed_form_is_the_papers_count():
    # FlashAttention-2 reads Q once, and K and V once for each q tile; it writes O and the fp32 LSE once.
    problem = ts.Problem(seqlen_q=1024, heads=2, head_dim=64)
    (row,) = ts.closed_form(problem, "cpu:flash2", tile=(128, 64)).rows()
    matrix = 2 * 1024 * 64 * 2
    assert row["closed_form.sm_l2_read_bytes"] == matrix + 2 * (1024 // 128) * matrix
    assert row["closed_form.sm_l2_write_bytes"] == matrix + 2 * 1024 * 4
    assert (row["block_m"], row["block_n"], row["kernel"], row["pass"]) == (128, 64, "cpu:flash2", "forward")


def test_a_frame_has_a_row_for_each_pass_and_the_names_of_budgets():
    record = ts.closed_form(PROBLEM, ["cpu:flash2", "gpu:flash2-mma"], passes="fwd+bwd")
    frame = record.frame()
    assert len(frame) == sum(len(run["passes"]) for run in record.json["runs"]) > 2
    assert str(frame["closed_form.sm_l2_read_bytes"].dtype) == "Int64"
    assert not [column for column in frame if column.startswith("simulated")]
    metrics = set(ts.metrics()["name"])
    assert {c for c in frame if c.startswith("closed_form.")} <= metrics
    long = record.frame(long=True)
    assert set(long["unit"]) == {"B", "FLOP"} and len(long) == 6 * len(frame)
    assert long["value"].sum() == sum(frame[c].sum() for c in frame if "closed_form." in c or "flops" in c)


def test_simulate_gives_what_the_program_gives(tmp_path):
    program = Path(ts.__file__).parent / "bin" / "tilescope"
    if not program.exists():
        pytest.skip("the program is not built")
    path = tmp_path / "record.json"
    words = "simulate --kernel cpu:flash2 --heads 4 --seqlen 512 --head-dim 64 --dtype fp16 --causal --pass fwd+bwd"
    subprocess.run([program, *words.split(), "--quiet", "--json", path], check=True)
    record = ts.simulate(PROBLEM, "cpu:flash2", passes="fwd+bwd")
    assert record.json["runs"] == ts.load(path).json["runs"]
    assert ts.diff(path, record).ok
    told = subprocess.run([sys.executable, "-m", "tilescope", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.split()[-1] == ts.__version__


def test_orders_scans_and_slices_are_the_programs(tmp_path):
    program = Path(ts.__file__).parent / "bin" / "tilescope"
    if not program.exists():
        pytest.skip("the program is not built")
    path = tmp_path / "record.json"
    words = "simulate --kernel gpu:flash2-mma --heads 4 --seqlen 512 --head-dim 64 --dtype fp16 --causal --pass fwd"
    choices = {"order": "longest-first", "scan": "sawtooth", "diagonal_slices": 4}
    told = [word for name, value in choices.items() for word in ("--" + name.replace("_", "-"), str(value))]
    subprocess.run([program, *words.split(), *told, "--quiet", "--json", path], check=True)
    record = ts.simulate(PROBLEM, "gpu:flash2-mma", **choices)
    assert record.json["runs"] == ts.load(path).json["runs"]
    plain = ts.simulate(PROBLEM, "gpu:flash2-mma").json["runs"]
    assert record.json["runs"] != plain and "diagonal_slices=4" in record.json["argv"][-1]
    cut = ts.closed_form(PROBLEM, "gpu:flash2-mma", diagonal_slices=4).json["runs"][0]["passes"][0]
    assert cut["executed_flops"] < plain[0]["passes"][0]["executed_flops"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ts.simulate(PROBLEM, "gpu:flash2-mma", replay=False, tile=(64, 64)),
        lambda: ts.simulate([PROBLEM, PROBLEM.replace(heads=2)], ["gpu:flash2-mma"], l2_curve=True, passes="fwd+bwd"),
        lambda: ts.closed_form(PROBLEM, "gpu:flash2-mma", diagonal_slices=4),
        lambda: ts.explain(
            REPORTS / "foreign" / "mha.json.gz",
            ts.Problem(batch=2, heads=16, seqlen_q=4096, head_dim=128, causal=True),
            passes="fwd",
            kernel_filter="flash",
            skip=1,
            count=1,
        ),
    ],
)
def test_a_record_says_how_to_make_it_again(make):
    record = make()
    again = eval(record.json["argv"][-1].removeprefix("import tilescope as ts; "), {"ts": ts})
    costs = ("when", "cost")
    assert again.json | dict.fromkeys(costs) == record.json | dict.fromkeys(costs)


def test_verify_judges_and_bench_times():
    record = ts.verify(PROBLEM.replace(seqlen=64), passes="fwd+bwd")
    forward, *backward = record.rows()
    assert 0 < forward["error.o.of_bound"] <= 1 and forward["error.lse.max_abs"] < 1e-3
    assert backward and all({"error.dq.max_abs", "error.dk.max_abs"} <= set(row) for row in backward)
    assert "error.o.of_bound" in str(record)
    for nothing in (ts.verify, ts.bench):
        with pytest.raises(ts.BadInput, match="problems"):
            nothing([])
    with pytest.raises(ts.BadInput, match="cpu:flash9") as caught:
        ts.verify(PROBLEM, "cpu:flash9")
    assert caught.value.field == "kernel" and "--" not in str(caught.value)
    if ts.info()["device_lack"]:
        for call in (lambda: ts.bench(PROBLEM, "gpu:flash2-mma"), ts.ceilings):
            with pytest.raises(ts.MachineLacks):
                call()


def test_what_is_printed_fits_a_window_and_tells_rows_apart():
    one = str(ts.simulate(PROBLEM, passes="fwd+bwd"))
    assert "simulated.dram_read_bytes" in one and max(map(len, one.splitlines())) <= 100
    swept = str(ts.simulate(PROBLEM.sweep(seqlen=[64, 128], causal=[False, True]), ["cpu:flash1", "cpu:flash2"]))
    headings, rows = swept.splitlines()[:3], swept.splitlines()[3:]
    assert (
        headings[-1].split()[:5] == ["kernel", "seqlen_q", "causal", "pass", "tile"] and "seqlen_k" not in headings[-1]
    )
    assert len(rows) == len(set(rows)) == 12 and max(map(len, rows)) < 160
    problem = ts.Problem(batch=2, heads=16, seqlen_q=4096, head_dim=128)
    explained = str(ts.explain(REPORTS / "foreign" / "mha.json.gz", problem, kernel_filter="triton"))
    assert "backward, dQ" in explained and "dram" not in explained and max(map(len, explained.splitlines())) < 120
    padded = ts.closed_form([PROBLEM, PROBLEM.replace(key_lengths=[9])])
    assert "(9,)" in str(padded) and len(padded.frame().drop_duplicates()) == 2


def test_ceilings_are_shown_as_tables():
    ceilings = ts.load(REPORTS / "data/ceilings-h200.json.gz")
    assert "dram_read" in str(ceilings) and "4.6 TB" in str(ceilings) and "<table>" in ceilings._repr_html_()
    assert repr(ceilings).endswith("ceilings>") and set(ceilings.frame()["unit"]) == {"byte/s", "flop/s"}


def test_values_that_are_columns_of_keys_do_not_cross():
    shared = ts.Problem.preset("deepseek-mla").replace(page_size=0, batch=1)
    assert "D576/512 bf16 kv shared" in str(shared) and "shared_kv=True" in repr(shared)
    words = program.words_of(shared)
    record = program.run_program("simulate", "--closed-form", "--kernel", "gpu:mla-decode", *words)
    assert record.json["runs"][0] == ts.closed_form(shared, "gpu:mla-decode").json["runs"][0]
    name = "closed_form.compulsory_read_bytes"
    together, apart = (ts.closed_form(problem, "cpu:flash2").rows()[0] for problem in (shared, shared.replace(shared_kv=False)))
    assert apart[name] - together[name] == 4096 * 512 * 2 and together["shared_kv"] is True
    with pytest.raises(ts.BadInput, match="head_dim_v = 512: must not exceed head_dim = 256 with shared_kv"):
        shared.replace(head_dim=256)


def test_keys_in_fp8_are_half_of_the_bytes():
    wide = ts.Problem(seqlen_q=1, seqlen_k=4096, head_dim=128, heads=32, heads_kv=8, dtype="bf16")
    narrow = wide.replace(kv_dtype="float8_e4m3fn", descale_v="random")
    assert str(narrow) == "B1 H32/8 Nq1 Nk4096 D128 bf16 kv fp8e4m3 descales v=random" and narrow.kv_dtype in repr(narrow)
    assert wide.kv_dtype == "bf16" and "kv_dtype" not in repr(wide) and wide.replace(dtype="fp16").kv_dtype == "fp16"
    of_wide, of_narrow = (ts.closed_form(problem, "gpu:decode").rows()[0] for problem in (wide, narrow))
    elements = 2 * 4096 * 8 * 128
    name = "closed_form.compulsory_read_bytes"
    assert of_wide[name] - of_narrow[name] == elements and of_narrow["kv_dtype"] == "fp8e4m3"
    with pytest.raises(ts.BadInput, match="kv_dtype = fp8e5m2: must be fp8e4m3"):
        wide.replace(kv_dtype="fp8e5m2")
    with pytest.raises(ts.BadInput, match="kv_dtype must be left out"):
        ts.closed_form(narrow.replace(descale_v=1.0), "gpu:flash2-mma")


def test_several_gpus_are_what_the_program_simulates(tmp_path):
    problem = ts.Problem.preset("llama3-8b")
    record = ts.simulate_gpus(problem, (2, 4), ["zigzag", "ulysses"], passes="fwd+bwd")
    frame = record.frame()
    assert len(frame) == len(record.rows()) == 8 and set(frame["schedule"]) == {"zigzag", "ulysses"}
    lost = frame[[column for column in frame if column.startswith("predicted.lost_")]].sum(axis=1)
    assert np.allclose(lost + frame["predicted.efficiency"], 1)
    units = record.frame(long=True).set_index("metric")["unit"]
    assert set(units["lost_bytes"]) == {""} and set(units["sent_bytes"]) == {"B"}
    assert "closed_form.balance" in frame and not any(column.startswith("measured.") for column in frame)
    shard = 8192 // 4 * 8 * 2 * 128 * 2
    zigzag = frame[(frame["gpus"] == 4) & (frame["schedule"] == "zigzag")]
    assert list(zigzag["link.sent_bytes"]) == [3 * shard, 11 * shard]
    assert "%" in str(record) and max(map(len, str(record).splitlines())) < 300
    record.save(tmp_path / "gpus.json")
    assert ts.load(tmp_path / "gpus.json").rows() == record.rows()
    exec(record.json["argv"][-1], {})
    program_file = Path(ts.__file__).parent / "bin" / "tilescope"
    if program_file.exists():
        words = "simulate --preset llama3-8b --gpus 2,4 --schedule zigzag,ulysses --pass fwd+bwd --quiet --json"
        subprocess.run([program_file, *words.split(), tmp_path / "told.json"], check=True)
        assert record.json["runs"] == json.loads((tmp_path / "told.json").read_text())["runs"]


def test_rates_of_several_gpus_and_what_cannot_be_split():
    problem = ts.Problem.preset("llama3-8b")

    def seconds(**rates):
        return ts.simulate_gpus(problem, 4, "all-gather", **rates).rows()[0]["predicted.time_s"]

    assert seconds(link_rate=50e9) > seconds() > seconds(flop_rate=2e15)
    with pytest.warns(UserWarning, match="ulysses on 16 GPUs: heads_kv = 8"):
        assert len(ts.simulate_gpus(problem, 16, ["zigzag", "ulysses"])) == 1
    with pytest.raises(ts.BadInput, match="heads_kv"):
        ts.simulate_gpus(problem, 16, "ulysses")
    with pytest.raises(ts.BadInput, match="zigzag"):
        ts.simulate_gpus(problem, 2, "zigzig")
    with pytest.raises(ts.BadInput, match="link-rate"):
        ts.simulate_gpus(problem, 2, link_rate=0)
    with pytest.raises(ts.BadInput, match="at least one"):
        ts.simulate_gpus(problem, [])
    assert set(ts.schedules()["name"]) >= {"ring", "zigzag", "ulysses-ring"}


def test_progress_is_told():
    told = []
    ts.simulate(PROBLEM.replace(heads=16, seqlen=2048), progress=lambda done, total: told.append((done, total)))
    assert told and told[-1][0] == told[-1][1] > 1 and all(done <= total for done, total in told)


def test_an_exception_of_progress_ends_the_simulation():
    def refuse(done, total):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        ts.simulate(PROBLEM.replace(heads=16, seqlen=16384), progress=refuse)


def test_control_c_ends_a_long_simulation(python):
    snippet = """
import signal, threading, time, tilescope as ts
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background inherits as ignored
problem = ts.Problem(seqlen_q=262144, heads=64, head_dim=128)
runs = threading.Event()
threading.Thread(target=lambda: (runs.wait(), signal.raise_signal(signal.SIGINT))).start()
began = time.monotonic()
try:
    ts.simulate(problem, progress=lambda done, total: runs.set())
except KeyboardInterrupt:
    print(time.monotonic() - began)
"""
    assert 0 < float(python(snippet)) < 5


def test_catalogues():
    assert {"cpu:flash2", "gpu:flash2-mma"} <= set(ts.kernels()["name"])
    assert "h200" in set(ts.machines()["name"]) and ts.machines()["l2_bytes"].min() > 2**20
    assert "passes" not in ts.counters()
    assert "traffic" in set(ts.counters()["name"]) and "seqlen" in set(ts.studies()["name"])
    assert "llama3-8b" in set(ts.presets()["name"])
    assert "llama3-70b" in set(ts.models()["name"])
    facts = ts.info()
    assert facts["version"] == ts.__version__ and facts["cuda"] in (True, False)
    assert facts["numpy"] == np.__version__


def test_what_is_installed_is_told_without_importing_it(python):
    told = python("import sys, tilescope; print(tilescope.info()['numpy'], *{'numpy', 'torch'} & set(sys.modules))")
    assert told.split() == [np.__version__]


def test_refusals_of_the_model():
    for call, field in (
        (lambda: ts.simulate(PROBLEM, machine="h20"), "machine"),
        (lambda: ts.profile_command(["no such program"]), "argv"),
        (lambda: ts.profile_command([]), "argv"),
        (lambda: ts.simulate(PROBLEM, "gpu:flash"), "kernel"),
        (lambda: ts.simulate(PROBLEM, passes="both"), "passes"),
        (lambda: ts.simulate([]), "problems"),
        (lambda: ts.simulate(PROBLEM, backward="sideways"), "backward"),
        (lambda: ts.simulate(PROBLEM, order="sideways"), "order"),
        (lambda: ts.simulate(PROBLEM, scan="sideways"), "scan"),
        (lambda: ts.simulate(PROBLEM, "gpu:flash2-mma", diagonal_slices=0), "diagonal_slices"),
        (lambda: ts.closed_form(PROBLEM, "gpu:flash2-mma", tile=(3, 5)), "kernel"),
        (lambda: ts.study("seqlens"), "study"),
        (lambda: ts.report(), "records"),
    ):
        with pytest.raises(ts.BadInput) as caught:
            call()
        assert caught.value.field == field, str(caught.value)
    with pytest.raises(TypeError, match="must be of type Problem"):
        ts.simulate([3])
    with pytest.raises(TypeError, match="Problem.preset"):
        ts.simulate("llama3-8b")
    for tile in ("128x64", (128,), (128.0, 64), 128):
        with pytest.raises(TypeError, match="tile must be .block_m, block_n., two integers"):
            ts.simulate(PROBLEM, tile=tile)
    with pytest.raises(TypeError, match="backward must be a name"):
        ts.simulate(PROBLEM, backward=1)


def test_without_a_kernel_the_model_takes_that_of_the_program():
    decoding = ts.Problem.model("llama3-70b", tp=8, seqlen=32768, decode=True)
    taken = []
    for problem in (decoding, PROBLEM, PROBLEM.replace(dtype="fp32", alibi=True), PROBLEM.replace(page_size=16)):
        words = [*program.words_of(problem), "--machine", "a100-80gb", "--closed-form"]
        (run,) = program.run_program("simulate", *words).json["runs"]
        for model in (ts.simulate, ts.advise):
            (row, *_) = model(problem, machine="a100-80gb").rows()
            assert row["kernel"] == run["kernel"], problem
        assert ts.closed_form(problem, None).rows()[0]["kernel"] == run["kernel"]
        taken.append(run["kernel"])
    assert taken[:2] == ["gpu:decode", "gpu:flash2-mma"] and len(set(taken)) > 2
    assert "kernel" not in ts.simulate(PROBLEM).json["argv"][-1]  # made again by the same rule
    assert ts.closed_form(PROBLEM, tile=(48, 48)).rows()[0]["kernel"] == "cpu:flash2"  # which others are not compiled for


def test_a_command_in_a_refusal_stays_as_it_is_typed(tmp_path):
    (tmp_path / "b200.json").write_text("{}")
    for machine in ("b200", tmp_path / "b200.json"):
        with pytest.raises(ts.BadInput, match="`tilescope list machines --template"):
            ts.simulate(PROBLEM, machine=machine)
    with pytest.raises(ts.BadInput, match="pass = bwd: must be fwd with page_size"):
        ts.simulate(PROBLEM.replace(page_size=16), passes="bwd")


def test_counters_of_a_chip_that_is_not_here():
    pytest.importorskip("pandas")
    try:
        table = ts.counters(chip="GH100").set_index("name")
    except ts.MachineLacks as lack:
        pytest.skip(str(lack))
    assert str(table["passes"].dtype) == "Int64" and table["passes"]["traffic"] >= 1
    assert table["passes"]["dram_read_bytes"] == 1 and "dram__bytes_read.sum" in table["formula"]["dram_read_bytes"]
    assert len(table) == len(ts.counters())
    with pytest.raises(ts.UnknownName, match="chip") as error:
        ts.counters(chip="GH10")
    assert "GH100" in error.value.nearest


def test_advice_is_the_best_choice_the_runner_up_and_the_kernels_own():
    problem = ts.Problem(seqlen_q=1024, heads=4, head_dim=64, dtype="fp16", causal=True)
    advice = ts.advise(problem, "h200")
    forward = [row for row in advice.rows() if row["pass"] == "forward"]
    times = [row["predicted.time_s"] for row in forward]
    assert len(times) == 3 and times[0] <= times[1] and times[0] <= times[2]
    best, runner_up = ([row.get(choice) for choice in ("block_m", "block_n", "order", "scan")] for row in forward[:2])
    assert best != runner_up
    for choice, one, other in zip(("order", "scan"), best[2:], runner_up[2:]):
        assert one == other or choice in str(advice).split()
    with pytest.raises(ts.UnknownName):
        ts.advise(problem, kernel="gpu:flash9")


def test_a_formula_names_no_machine_and_predicts_no_time():
    problem = ts.Problem(seqlen_q=1024, heads=4, head_dim=64, dtype="fp16")
    assert "predicted.time_s" not in ts.closed_form(problem, "gpu:flash3").rows()[0]
    assert ts.simulate(problem, "gpu:flash3", replay=False).rows()[0]["predicted.time_s"] > 0
