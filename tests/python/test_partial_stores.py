# SPDX-License-Identifier: Apache-2.0
"""The emulated device's stores in parts beside what an H200 counted of the same kernels, where no cycles decide."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tilescope as ts

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "emulator" / "stores"))
import store_kernels
import sweep

RECORD = json.loads(gzip.decompress((ROOT / "reports/emulated/partial_stores.json.gz").read_bytes()))
COUNTED = {name: numbers for name, *numbers in RECORD["kernels"]}
KERNELS = {kernel.name: kernel for kernel in sweep.all_kernels() if kernel.name in COUNTED}
# Stores without a pause, or one that every model sees; and stores of warps in step that all merged, or could not.
EXACT = [
    name
    for name, kernel in KERNELS.items()
    if (kernel.family in ("chain", "cover", "ways") and "alternating_4" not in name)
    or (kernel.family == "window" and name.endswith("_0"))
    or name
    in ("open_s4_4", "open_s8_4", "open_s16_4", "open_s32_3", "rows_2_4", "rows_4_2", "rows_8_8", "scattered_32_32")
    or (kernel.family == "between" and name.endswith(("full_1", "full_3", "full_4", "full_8", "bar", "ldotherwait")))
    or name in ("tiles_1_558_6", "tiles_2_256_64", "tiles_4_512_0")
]


def emulated(kernel):
    """Sectors of a round: asked for, and sent."""
    memory = np.zeros(kernel.pitch * kernel.rounds + (1 << 20), np.uint8)
    result = ts.emulate(
        store_kernels.HEAD + kernel.ptx(), grid=kernel.grid, block=32 * kernel.warps, args=[memory, 0]
    ).check()
    times = 32 * kernel.rounds * kernel.grid
    return result.metrics["global_store_bytes"] / times, result.metrics["sm_l2_write_bytes"] / times


def test_there_is_something_of_each_kind():
    assert len(EXACT) > 40
    assert {KERNELS[name].family for name in EXACT} >= {"chain", "window", "between", "cover", "open", "rows", "tiles"}


@pytest.mark.parametrize("name", EXACT)
def test_stores_merge_as_on_an_h200(name):
    counted = COUNTED[name]
    asked, sent = emulated(KERNELS[name])
    assert (asked, sent) == (pytest.approx(counted[0]), pytest.approx(counted[1], rel=0.04))
