# SPDX-License-Identifier: Apache-2.0
"""Column sums in Triton that race: every program adds its row to one place. pip install triton numpy; no GPU."""

import numpy as np
import tilescope as ts
import triton
import triton.language as tl


@triton.jit
def column_sums(x, sums, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns)
    tl.store(sums + at, tl.load(sums + at, mask=at < columns) + row, mask=at < columns)  # tl.atomic_add is right


x, sums = np.ones((64, 1000), np.float32), np.zeros(1000, np.float32)
result = ts.emulate_triton(column_sums, 64, x, sums, 1000, BLOCK=1024, races=True)
print(result)  # bytes and sectors a request of each line, then what is found
