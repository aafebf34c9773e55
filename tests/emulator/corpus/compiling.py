# SPDX-License-Identifier: Apache-2.0
"""PTX of the corpus: by Triton, and by nvcc from PATH or /usr/local/cuda. No GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import cases
import numpy as np


def of_toolkit(program: str) -> str:
    return shutil.which(program) or f"/usr/local/cuda/bin/{program}"


def without_paths(ptx: str) -> str:
    """Sources of this folder and of Triton without where they lie on this machine."""
    return re.sub(r'(file\s+\d+\s+|\.b8\s+)?"[^"\s]*/(corpus/|triton/language/)', r'\1"\2', ptx)


def of_cuda(source: Path, chip: str = "sm_90", *options: str) -> dict[str, Any]:
    words = [of_toolkit("nvcc"), "-ptx", "-lineinfo", f"-arch={chip}", "-std=c++20", "-O3", *options, str(source)]
    words += ["-o", "-"]
    ptx = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return {"ptx": without_paths(ptx)}


def of_triton(kernel: str, case: cases.Case, target: int, **options: Any) -> dict[str, Any]:
    import serving_kernels
    import triton.language as tl
    import triton_kernels
    from tilescope import tensor
    from tilescope.emulation_triton import _compile

    types = {"fp16": tl.float16, "fp32": tl.float32, "fp64": tl.float64, "int32": tl.int32}
    named = {
        each: tensor(value, case.dtypes.get(each, "")) if isinstance(value, np.ndarray) else value
        for each, value in case.arguments.items()
    } | {each: types.get(value, value) for each, value in case.constants.items()}
    options |= {"num_warps": case.warps, "num_stages": case.stages}
    function = getattr(triton_kernels, kernel, None) or getattr(serving_kernels, kernel)
    compiled, signature, _ = _compile(function, target, [], named | options)
    metadata = compiled.metadata
    return {
        "ptx": without_paths(compiled.asm["ptx"]),
        "warps": metadata.num_warps,
        "shared": metadata.shared,
        "arguments": list(signature),
        "scratch": [metadata.global_scratch_size, metadata.profile_scratch_size],
    }
