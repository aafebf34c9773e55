# SPDX-License-Identifier: Apache-2.0
import os
import sys
from pathlib import Path

import numpy as np
import pytest


def normal(shape, seed, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.fixture
def qkv():
    """q, k, v of a small ragged problem with grouped heads."""

    def make(dtype=np.float32, batch=2, heads=4, heads_kv=2, seqlen_q=129, seqlen_k=193, head_dim=64):
        return (
            normal((batch, heads, seqlen_q, head_dim), 1, dtype),
            normal((batch, heads_kv, seqlen_k, head_dim), 2, dtype),
            normal((batch, heads_kv, seqlen_k, head_dim), 3, dtype),
        )

    return make


@pytest.fixture
def python():
    """Runs a snippet in a fresh interpreter and returns what it prints."""
    import subprocess

    def run(snippet, **more):
        done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, timeout=120, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


FAKE_LAUNCH = """
import ctypes, tilescope as ts
cuda = ctypes.CDLL("libcuda.so.1")
names = []
def launch(name="fake_kernel"):
    names.append(ctypes.c_char_p(name.encode()))
    assert cuda.cuLaunchKernel(names[-1], 7, 1, 1, 32, 1, 1, 0, None, None, None) == 0
    return name
"""


@pytest.fixture
def fakes(tmp_path):
    """The environment of a process that finds a fake driver and a fake libcupti, on which every counter is 64."""
    library = Path(os.environ.get("TILESCOPE_LIBRARIES", "nowhere"), "tests/fake_cuda/libcuda.so.1")
    if not library.exists():
        pytest.skip("the fake driver is not built")
    counters = (
        "l1tex__m_xbar2l1tex_read_bytes lts__t_sectors_srcunit_tex_op_write lts__t_sectors_srcunit_tex_op_red "
        "lts__t_sectors_srcunit_tex_op_atom dram__bytes_read dram__bytes_write gpu__time_duration"
    )
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(library.parent),
        "TILESCOPE_CUPTI": str(library),
        "TILESCOPE_FAKE_COUNTERS": counters,
        "TILESCOPE_FAKE_LOG": str(tmp_path / "sessions"),
    }


@pytest.fixture
def on_fakes(python, fakes):
    """Runs a snippet that may launch() kernels on the fake driver."""

    def run(snippet, **more):
        return python(FAKE_LAUNCH + snippet, env={**fakes, **more})

    return run
