# SPDX-License-Identifier: Apache-2.0
"""What `import tilescope` says on a machine that lacks a library."""

import subprocess
import sys
from pathlib import Path

import tilescope


def said_without(tmp_path, reason):
    package = tmp_path / "tilescope"
    package.mkdir()
    (package / "__init__.py").write_text(Path(tilescope.__file__).read_text())
    (package / "_native.py").write_text(f"raise ImportError({reason!r})\n")
    run = subprocess.run([sys.executable, "-c", "import tilescope"], cwd=tmp_path, capture_output=True, text=True,
                         env={"PYTHONPATH": str(tmp_path)})
    assert run.returncode == 1
    return run.stderr.splitlines()[-1]


def test_the_package_to_install_is_named(tmp_path):
    assert "apt-get install libgomp1" in said_without(tmp_path, "libgomp.so.1: cannot open shared object file")


def test_another_failure_is_told_as_it_is(tmp_path):
    assert said_without(tmp_path, "undefined symbol: x") == "ImportError: undefined symbol: x"
