# SPDX-License-Identifier: Apache-2.0
"""A byte budget of a kernel in pytest, on any machine: pytest examples/emulate/test_budget.py"""

from pathlib import Path

import numpy as np

PTX = Path(__file__).parent / "transpose.ptx"


def test_transpose_moves_each_element_twice(byte_budget):
    n = 128
    x = np.arange(n * n, dtype=np.float32).reshape(n, n)
    out = np.zeros((n, n), np.float32)
    byte_budget.emulate(
        PTX,
        "transpose_tiled",
        grid=(4, 4),
        block=(32, 8),
        args=[x, out, n],
        races=True,  # what the kernel does wrong fails the test, too
        sm_l2_read_bytes=x.nbytes,
        sm_l2_write_bytes=x.nbytes,
    )
    assert (out == x.T).all()
