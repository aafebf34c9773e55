#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""On which SM of a device each CTA of a grid runs, where all are there at once: places.py writes JSON on standard output.
What L1 keeps for a CTA's neighbours depends on it."""

from __future__ import annotations

import ctypes
import json

import measure
import numpy as np

# Each CTA notes its SM, and stays until all have begun.
PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry places(.param .u64 out)
{
  .reg .pred %p;
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [out];
  mov.u64 %rd2, %clock64;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ctaid.y;
  mov.u32 %r3, %nctaid.x;
  mad.lo.u32 %r1, %r2, %r3, %r1;
  mul.wide.u32 %rd3, %r1, 4;
  add.u64 %rd3, %rd1, %rd3;
  mov.u32 %r4, %smid;
  st.global.u32 [%rd3], %r4;
WAIT:
  mov.u64 %rd4, %clock64;
  sub.u64 %rd4, %rd4, %rd2;
  setp.lt.u64 %p, %rd4, 100000;
  @%p bra WAIT;
  ret;
}
\0"""


def places(grid: tuple[int, int], threads: int) -> list[int]:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    measure.call("cuModuleLoadData", ctypes.byref(module), PTX)
    measure.call("cuModuleGetFunction", ctypes.byref(function), module, b"places")
    sms = np.zeros(grid[0] * grid[1], np.uint32)
    at = measure.on_device(sms)
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(at))
    measure.call("cuLaunchKernel", function, *grid, 1, threads, 1, 1, 0, None, pointers, None)
    measure.call("cuCtxSynchronize")
    measure.call("cuMemcpyDtoH_v2", sms.ctypes.data_as(ctypes.c_void_p), at, ctypes.c_size_t(sms.nbytes))
    return sms.tolist()


if __name__ == "__main__":
    measure.open_device()
    told = [
        {"grid": grid, "threads": threads, "sms": places(grid, threads)}
        for grid, threads in (((22, 21), 256), ((302, 1), 128), ((528, 1), 512), ((24, 33), 256))
        for _ in range(2)
    ]
    print(json.dumps(told))
