# SPDX-License-Identifier: Apache-2.0
"""Records that are kept, compared, explained and reported: the same as by the command line."""

import json
import pickle
from pathlib import Path

import pytest
import tilescope as ts

PROBLEM = ts.Problem(seqlen_q=512, heads=4, head_dim=64, causal=True)
REPORTS = Path(__file__).parents[2] / "reports"


def test_records_are_saved_loaded_joined_and_pickled(tmp_path):
    record = ts.closed_form(PROBLEM)
    record.save(tmp_path / "a.json")
    record.save(tmp_path / "a.json.gz")
    assert (tmp_path / "a.json.gz").stat().st_size < (tmp_path / "a.json").stat().st_size
    assert ts.load(tmp_path / "a.json.gz").json == record.json
    (tmp_path / "cut.json.gz").write_bytes((tmp_path / "a.json.gz").read_bytes()[:-200])
    with pytest.raises(ts.BadInput, match="cut.json.gz"):
        ts.load(tmp_path / "cut.json.gz")
    loaded = ts.load(tmp_path / "a.json")
    assert loaded.json == record.json == pickle.loads(pickle.dumps(record)).json
    assert len(record + ts.closed_form(PROBLEM.replace(seqlen=64))) == 2
    assert "closed_form.sm_l2_read_bytes" in str(record) and "<table>" in record._repr_html_()
    with pytest.raises(ts.BadInput, match="path"):
        record.save(tmp_path / "nowhere" / "a.json")
    with pytest.raises(ts.BadInput, match="nothing.json"):
        ts.load(tmp_path / "nothing.json")
    damaged = json.loads(record.text)
    damaged["runs"][0]["passes"][0]["flops"] = -1
    (tmp_path / "b.json").write_text(json.dumps(damaged))
    with pytest.raises(ts.BadInput, match=r"b\.json.*flops"):
        ts.load(tmp_path / "b.json")
    with pytest.raises(ts.BadInput, match="schema"):
        ts.load('{"schema": "somebody.else/1"}')


def test_the_command_of_a_record_makes_it_again(python):
    record = ts.closed_form(PROBLEM.replace(dtype="bf16", window=(3, 0)), "cpu:flash1", tile=(64, 32))
    program, option, source = record.json["argv"]
    assert (program, option) == ("python3", "-c") and "'" not in source
    again = python(source.replace("import tilescope as ts; ", "import tilescope as ts; print(") + ".text)")
    assert json.loads(again)["runs"] == record.json["runs"]


def test_diff_finds_what_grew():
    square = PROBLEM.replace(causal=False)  # so that no tile does work in vain
    base = ts.closed_form(square, tile=(128, 64))
    new = ts.closed_form(square, tile=(64, 64))
    changes = ts.diff(base, new)
    assert not changes.ok and "REGRESSION" in str(changes) and changes.frame()["regressed"].any()
    with pytest.raises(ts.CheckFailed, match="beyond the budget"):
        changes.check()
    assert ts.diff(new, base).ok and ts.diff(base, base).ok
    allowed = ts.diff(
        base, new, budgets={"sm_l2_read_bytes": "150%", "executed_flops": "50%", "sm_l2_write_bytes": "50%"}
    )
    allowed.check()
    with pytest.raises(ts.UnknownName):
        ts.diff(base, new, budgets={"dram_bytes": "5%"})
    with pytest.raises(ts.BadInput, match="dram_read_bytes"):
        ts.diff(base, new, budgets={"dram_read_bytes": "5%"})


def test_explain_reads_what_nsight_compute_wrote(tmp_path):
    sectors = (f"lts__t_sectors_srcunit_tex_op_{op}.sum" for op in ("write", "red", "atom"))
    counters = ("l1tex__m_xbar2l1tex_read_bytes.sum", *sectors)
    names = ("ID", "Kernel Name", "Block Size", "Grid Size", *counters)
    values = (0, "attn_fwd", "(256, 1, 1)", "(32, 32, 1)", 2181038080, 1064960, 0, 0)
    table = tmp_path / "ncu.csv"
    table.write_text("\n".join(",".join(f'"{cell}"' for cell in row) for row in (names, [""] * len(names), values)))
    (row,) = ts.explain(table, ts.Problem(batch=2, heads=16, seqlen_q=4096, head_dim=128)).rows()
    assert row["program"].startswith("forward") and row["left_over.read_residual_bytes"] == 0


def test_a_block_counted_as_a_whole_is_not_explained():
    with pytest.raises(ts.BadInput, match="a block is counted as a whole"):
        ts.count().explain(ts.Problem(heads=16, seqlen_q=512, head_dim=64))


def test_explain_finds_the_tiles_of_somebodys_kernel():
    problem = ts.Problem(batch=2, heads=16, seqlen_q=4096, head_dim=128)
    explained = ts.explain(REPORTS / "foreign" / "mha.json.gz", problem, kernel_filter="flash_fwd")
    (kernel,) = explained.json["kernels"]
    assert kernel["explanation"]["agreement"] == "explained"
    (row,) = explained.rows()
    assert (row["agreement"], row["program"]) == ("explained", "forward") and row["block_m"] == (128,)
    assert row["must.write_bytes"] == 34078720 and row["multiple.sm_l2"] == pytest.approx(19.98, rel=1e-3)
    assert row["by_chance"] < 0.02
    assert "spills" in [cause["name"] for cause in kernel["explanation"]["answer"]["causes"]]
    doubted = ts.explain(REPORTS / "foreign" / "mha.json.gz", problem.replace(heads=12), kernel_filter="dq_dk_dv_loop")
    (row,) = doubted.rows()
    assert (row["agreement"], row["other_heads"]) == ("unexplained", 32)
    with pytest.raises(ts.BadInput, match="^record.* that kernel_filter, skip and count leave") as caught:
        ts.explain(REPORTS / "foreign" / "mha.json.gz", problem, kernel_filter="nothing like this")
    assert caught.value.field == "record" and "--" not in str(caught.value)
    frame = ts.load(REPORTS / "foreign" / "mha.json.gz").frame()
    assert "measured.sm_l2_read_bytes" in frame and len(frame) == len(ts.load(REPORTS / "foreign" / "mha.json.gz"))


def test_report_has_tables_and_figures(tmp_path):
    record = ts.simulate(PROBLEM.sweep(seqlen=[128, 256, 512]))
    page = ts.report(record)
    assert page.figures and "<svg" in next(iter(page.figures.values())).svg
    assert "python3 -c" in page.markdown and "./tilescope -c" not in page.markdown
    assert "sandbox" in page._repr_html_() and "<script" not in page._repr_html_()
    bundle = next(iter(page.figures.values()))._repr_mimebundle_()
    assert set(bundle) == {"image/svg+xml", "text/plain"}
    assert all(path.exists() for path in page.save(tmp_path / "report"))
