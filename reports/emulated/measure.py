#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Launches the predicted kernels on a device, each once, from the cubins beside the prediction: measure.py FOLDER. Needs
numpy and the CUDA driver; says what numpy finds wrong with the results."""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

import kernels
import numpy as np
from kernels import cases

_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_driver = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: Any) -> None:
    code = getattr(_driver, name)(*arguments)
    if code != 0:
        raise RuntimeError(f"{name}: error {code} of the CUDA driver")


def open_device() -> None:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)


def on_device(array: np.ndarray) -> ctypes.c_uint64:
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(array.nbytes))
    call("cuMemcpyHtoD_v2", address, array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes))
    return address


def scalar(value: Any) -> Any:
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int(value)


def launch(told: dict[str, Any], folder: Path) -> tuple[dict[str, Any], float]:
    """Names of results that numpy finds wrong, and how long the launch took."""
    case = kernels.case_of(told["case"], told["sizes"])
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    image = (folder / f"{told['name']}.cubin").read_bytes()
    call("cuModuleLoadData", ctypes.byref(module), image)
    call("cuModuleGetFunction", ctypes.byref(function), module, told["name"].encode())
    shared = told["launch"]["shared"]
    call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared)
    given = {name: case.arguments[name] for name in told["arguments"]}
    placed = {
        name: on_device(value) if isinstance(value, np.ndarray) else scalar(value) for name, value in given.items()
    }
    ctas = int(np.prod(case.grid))
    scratch = [on_device(np.zeros(size * ctas, np.uint8)) if size else ctypes.c_uint64(0) for size in told["scratch"]]
    values = [*placed.values(), *scratch]
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
    grid, block = ((*extent, 1, 1)[:3] for extent in (case.grid, told["launch"]["block"]))
    begin = time.perf_counter()
    call("cuLaunchKernel", function, *grid, *block, shared, None, pointers, None)
    call("cuCtxSynchronize")
    seconds = time.perf_counter() - begin
    for name in case.expected:
        array = case.arguments[name]
        size = ctypes.c_size_t(array.nbytes)
        call("cuMemcpyDtoH_v2", array.ctypes.data_as(ctypes.c_void_p), placed[name], size)
    return cases.wrong_results(case), seconds


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    open_device()
    failed = False
    for told in json.loads((folder / "predicted.json").read_text())["kernels"]:
        wrong, seconds = launch(told, folder)
        failed |= bool(wrong)
        print(f"{told['name']}: {f'WRONG: {wrong}' if wrong else 'right'}, {seconds:.6f} s", flush=True)
    sys.exit(failed)
