# SPDX-License-Identifier: Apache-2.0
"""What is held against counters: kernels of the corpus at sizes that a seed draws, and our rungs. Needs numpy alone."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "emulator" / "corpus"))
import cases


def drawn(seed: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, the case of the corpus that it is, and what the case is called with."""
    numbers = random.Random(seed)

    def of(least: int, most: int, step: int = 1) -> int:
        return step * numbers.randint(-(-least // step), most // step)

    yield "vector_add", "vector_add", {"n": of(10**6, 3 * 10**6)}
    yield "softmax_1000", "softmax", {"rows": of(200, 2000), "columns": 1000, "stride": 1024}
    yield "softmax_1024", "softmax", {"rows": of(200, 2000), "columns": 1024, "stride": 1024}
    yield "layer_norm", "layer_norm", {"rows": of(200, 800), "columns": of(1000, 4000)}
    yield "layer_norm_aligned", "layer_norm", {"rows": of(200, 800), "columns": of(1000, 4000, 16)}
    yield "matmul_fp16", "matmul_fp16", {name: of(300, 900, 16) for name in "mnk"}
    yield "matmul_fp16_ragged", "matmul_fp16", {name: of(200, 500) for name in "mnk"}
    yield "matmul_fp8", "matmul_fp8", {name: of(300, 900, 16) for name in "mnk"}
    by_descriptors = {"kernel": "matmul_by_device_descriptors"}
    yield "matmul_tma", "matmul_by", by_descriptors | {name: of(300, 900, 8) for name in "mnk"}
    yield "attention_forward", "attention_case", {"causal": False, "seqlen": of(300, 1200), "heads": of(2, 6)}
    yield "attention_backward", "attention_backward", {"seqlen": of(300, 900, 64), "heads": of(2, 6)}
    yield "gather", "gather", {"rows": of(1000, 4000), "width": of(100, 600), "table_rows": of(200, 2000)}
    yield "matmul_tiled", "matmul_tiled", {name: of(150, 400) for name in "mnk"}
    yield "reduce_shuffle", "reduce_shuffle", {"rows": of(200, 900), "columns": of(1000, 6000)}
    for name, rows_of_block in (("transpose_through_shared", 8), ("transpose_plain", 32)):
        sizes = {"rows": of(500, 1500), "columns": of(500, 1500)}
        yield name, "transpose_by", {"rows_of_block": rows_of_block, **sizes}
    yield "histogram_atomics", "histogram_atomics", {"n": of(500_000, 2_000_000), "blocks": of(100, 400)}
    yield "stencil", "stencil", {"rows": of(500, 1500), "columns": of(500, 1500)}
    # Again, as rows that begin in the middle of a sector have rules of their own.
    for again in "bc":
        yield f"matmul_fp8_{again}", "matmul_fp8", {name: of(300, 900, 16) for name in "mnk"}
        yield f"matmul_tma_{again}", "matmul_by", by_descriptors | {name: of(300, 900, 8) for name in "mnk"}
    # More than an L2 keeps.
    yield "vector_add_large", "vector_add", {"n": of(8 * 10**6, 12 * 10**6, 16)}
    yield "gather_large", "gather", {"rows": of(80000, 160000), "width": 256, "table_rows": of(50000, 100000)}
    sizes = {"rows": of(3000, 5000, 8), "columns": of(3000, 5000, 8)}
    yield "transpose_plain_large", "transpose_by", {"rows_of_block": 32, **sizes}
    # Again, where L1 merges stores.
    yield "vector_add_b", "vector_add", {"n": of(10**5, 10**6)}
    yield "softmax_b", "softmax", {"rows": of(200, 2000), "columns": of(600, 1000), "stride": 1024}
    columns = of(600, 1023)
    yield "softmax_c", "softmax", {"rows": of(200, 2000), "columns": columns, "stride": columns}
    yield "layer_norm_b", "layer_norm", {"rows": of(200, 800), "columns": of(500, 4000)}
    yield "gather_b", "gather", {"rows": of(1000, 4000), "width": of(50, 600), "table_rows": of(200, 2000)}
    yield "matmul_fp16_ragged_b", "matmul_fp16", {name: of(200, 500) for name in "mnk"}


def rungs(seed: int) -> Iterator[tuple[str, list[str]]]:
    """Words of `tilescope run`."""
    numbers = random.Random(~seed)
    for kernel, dtype, most in (
        ("gpu:standard", "fp16", 400),
        ("gpu:flash1", "fp16", 400),
        ("gpu:flash2-simt", "fp32", 300),
        ("gpu:flash2-mma", "fp16", 700),
        ("gpu:flash3", "fp16", 900),
    ):
        heads, seqlen = numbers.randint(1, 3), numbers.randint(150, most)
        problem = f"--batch 1 --heads {heads} --seqlen {seqlen} --head-dim 64 --dtype {dtype} --pass fwd+bwd"
        yield kernel, ["run", "--kernel", kernel, *problem.split(), "--quiet"]


def case_of(case: str, sizes: dict[str, Any]) -> cases.Case:
    make = {**vars(cases)}[case]
    return make(90, **sizes) if case == "matmul_fp8" else make(**sizes)
