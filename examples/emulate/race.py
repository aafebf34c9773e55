# SPDX-License-Identifier: Apache-2.0
"""A race that did no harm, found in PTX without a GPU: a transposition through shared memory whose barrier is gone."""

from pathlib import Path

import numpy as np
import tilescope as ts

ptx = (Path(__file__).parent / "transpose.ptx").read_text().replace("bar.sync", "// bar.sync")
n = 128
x = np.arange(n * n, dtype=np.float32).reshape(n, n)
out = np.zeros((n, n), np.float32)
result = ts.emulate(ptx, "transpose_tiled", grid=(4, 4), block=(32, 8), args=[x, out, n], races=True)
for finding in result.errors:
    print(finding)
