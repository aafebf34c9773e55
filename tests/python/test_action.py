# SPDX-License-Identifier: Apache-2.0
"""What action.yml runs, as a runner runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tilescope as ts

PACKAGE = Path(ts.__file__).parent


@pytest.fixture
def gate(tmp_path):
    program = PACKAGE / "bin" / "tilescope"
    if not program.exists():
        pytest.skip("the program is not built")

    def run(**settings):
        given = {
            "GITHUB_STEP_SUMMARY": tmp_path / "summary.md",
            "GITHUB_OUTPUT": tmp_path / "output",
            "RUNNER_TEMP": tmp_path,
            "TILESCOPE_PROGRAM": program,
            **settings,
        }
        environment = {**os.environ, **{name: str(value) for name, value in given.items()}}
        return subprocess.run(
            [sys.executable, PACKAGE / "action.py"], env=environment, capture_output=True, text=True, timeout=60
        )

    return run


def test_a_regression_fails_the_job_and_is_told(gate, tmp_path):
    problem = ts.Problem(seqlen_q=512, head_dim=64)
    base, new = tmp_path / "base.json", tmp_path / "new.json"
    ts.closed_form(problem, tile=(128, 64)).save(base)
    ts.closed_form(problem, tile=(64, 64)).save(new)
    failed = gate(BASE=base, RECORD=new)
    assert failed.returncode == 1 and "::error title=closed_form.sm_l2_read_bytes grew::" in failed.stdout
    assert "**regression**" in (tmp_path / "summary.md").read_text()
    charts = Path((tmp_path / "output").read_text().split("=")[1].strip())
    assert {"name", "unit", "value", "extra"} == set(json.loads(charts.read_text())[0])
    assert gate(BASE=base, RECORD=new, BUDGETS="sm_l2_read_bytes=150%\nexecuted_flops=1%").returncode == 0


def test_a_command_makes_the_record(gate, tmp_path):
    base = tmp_path / "base.json"
    ts.closed_form(ts.Problem(seqlen_q=512, head_dim=64)).save(base)
    command = "simulate --closed-form --heads 1 --seqlen 512 --head-dim 64 --dtype fp16"
    assert gate(BASE=base, COMMAND=command).returncode == 0
    assert gate(BASE=base).returncode == 2


def test_text_of_a_record_is_no_command_and_no_markup(gate, tmp_path):
    problem = ts.Problem(seqlen_q=512, head_dim=64)
    base, new = tmp_path / "base.json", tmp_path / "new.json"
    for path, tile in ((base, (128, 64)), (new, (64, 64))):
        record = json.loads(json.dumps(ts.closed_form(problem, tile=tile).json))
        record["runs"][0]["kernel"] = "gpu:x\n::stop-commands::x\n<script>|[a](b)"
        path.write_text(json.dumps(record))
    failed = gate(BASE=base, RECORD=new)
    assert failed.returncode == 1
    assert not [line for line in failed.stdout.splitlines() if line.startswith("::stop-commands")]
    summary = (tmp_path / "summary.md").read_text()
    assert "<script>" not in summary and "[a](b)" not in summary and "\n::" not in summary
    assert "**regression**" in summary


def test_a_record_that_is_none_is_refused_without_a_traceback(gate, tmp_path):
    base, new = tmp_path / "base.json", tmp_path / "new.json"
    ts.closed_form(ts.Problem(seqlen_q=512, head_dim=64)).save(base)
    for text in ("[]", '{"schema": "tilescope.run/1", "runs": {"columns": [], "rows": []}}', "{"):
        new.write_text(text)
        refused = gate(BASE=base, RECORD=new)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr
