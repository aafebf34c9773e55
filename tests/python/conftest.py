# SPDX-License-Identifier: Apache-2.0
import sys

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
