# SPDX-License-Identifier: Apache-2.0
"""Byte budgets in pytest, and the blocks of README and recipes that need a device."""

import contextlib
import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from steps import LONGEST_S, require, run, step


@step
def a_budget_in_pytest():
    import importlib.util

    if importlib.util.find_spec("pytest") is None:
        return {"left out": "there is no pytest"}
    folder = Path(tempfile.mkdtemp())
    (folder / "test_budget.py").write_text(
        """
import pytest, torch
from tilescope.torch import attention

def run():
    q = torch.randn(1, 8, 1024, 64, device="cuda", dtype=torch.float16)
    attention(q, q, q)

run()  # what the first launches of a process load is not a test's

@pytest.mark.byte_budget(dram_write_bytes="100 MB")
def test_whole():
    run()

def test_much(byte_budget):
    run()
    with pytest.raises(AssertionError, match="measured.sm_l2_read_bytes is"):
        with byte_budget(sm_l2_read_bytes="1 kB", filter="flash|attention|forward"):
            run()
"""
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "-p",
        "tilescope.pytest_plugin",
        ".",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONGEST_S)
    require(done.returncode == 0 and "2 passed" in done.stdout, done.stdout[-1500:], done.stderr[-500:])
    return {"said": done.stdout.splitlines()[-1]}


@step
def the_pages_blocks():
    """Every block of the README and of the recipes that needs a device, in its order."""
    said = []
    for page in ("README.md", "python/RECIPES.md"):
        names = {}
        exec("import tilescope as ts", names)
        for needed, block in re.findall(
            r"^```python(?: requires=(\w+))?\n(.*?)^```", Path(page).read_text(), re.M | re.S
        ):
            if needed == "device":
                heard = io.StringIO()
                with contextlib.redirect_stdout(heard):
                    if "@triton.jit" in block:  # which reads the source's file
                        run_as_file(block)
                    else:
                        exec(compile(block, page, "exec"), names)
                said.append({"page": page, "first line": block.splitlines()[0], "said": heard.getvalue()[:400]})
    return said


def run_as_file(block):
    source = Path(tempfile.mkdtemp(), "block.py")
    source.write_text("import tilescope as ts\nimport torch\n" + block)
    done = subprocess.run([sys.executable, source], capture_output=True, text=True, timeout=LONGEST_S)
    require(done.returncode == 0, done.stderr[-1000:])
    print(done.stdout)


if __name__ == "__main__":
    run()
