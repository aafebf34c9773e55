#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels that store parts of sectors and vary one thing at a time, which the model of L1's merging rests on:
sweep.py write FOLDER          their PTX, as one file, and a list; then: ptxas -O1 -arch=sm_90a stores.ptx -o stores.cubin
sweep.py launch FOLDER         on a device, each once, for ncu or `tilescope profile`; needs the CUDA driver
-O1, since ptxas else moves stores across the waits between them."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from store_kernels import HEAD, Kernel, Load, Plain, Store, Wait

BUFFER = 256 << 20
# By the lines that a store touches: bytes of a lane, and the distance of lanes.
SHAPES = {"one": (4, 0), "s4": (2, 4), "s8": (4, 8), "s16": (4, 16), "s32": (4, 32), "s128": (4, 128)}


def part(shape: str, number: int = 0, behind: int = 0) -> Store:
    size, stride = SHAPES[shape]
    return Store(behind + size * number, size, stride)


def of_one_warp() -> Iterator[Kernel]:
    for shape in SHAPES:
        for wait in (0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 256):
            yield Kernel("window", f"window_{shape}_{wait}", [[part(shape), Wait(wait), part(shape, 1)]])
        for count in (3, 4, 8, 16):
            numbers = 2 if shape == "s4" else 4 if shape in ("s16", "s32", "s128") else 1
            yield Kernel("chain", f"chain_{shape}_{count}", [[part(shape, i % numbers) for i in range(count)]])
    for places in (2, 4):
        turns = [part("s16", i, 2048 * place) for i in range(4) for place in range(places)]
        yield Kernel("chain", f"chain_alternating_{places}", [turns], pitch=16384)
    for shape in ("one", "s4", "s16"):
        for count in (1, 2, 3, 4, 8):
            others = [Store(4096 + 512 * i, 4, 4) for i in range(count)]
            yield Kernel(
                "between", f"between_{shape}_full_{count}", [[part(shape), *others, part(shape, 1)]], pitch=65536
            )
        others = {"ldother": Load(4096, 4), "ldotherwait": Load(4096, 4, wait=True), "bar": Plain("bar.sync 0;")}
        others |= {"membargl": Plain("membar.gl;"), "sts": Plain("st.volatile.shared.u32 [%sh], %v0;")}
        for name, step in others.items():
            yield Kernel("between", f"between_{shape}_{name}", [[part(shape), step, part(shape, 1)]])
        for way in (".wb", ".cg", ".cs", ".wt"):
            stores = [Store(each.offset, each.bytes, each.stride, way=way) for each in (part(shape), part(shape, 1))]
            yield Kernel("ways", f"ways_{shape}_{way[1:]}", [list(stores)])
        held = [Load(0, max(4, SHAPES[shape][1]), wait=True), part(shape), part(shape, 1)]
        yield Kernel("held", f"held_{shape}", [held])
    whole = Store(0, 4, 4)
    yield Kernel("cover", "cover_whole_part_0", [[whole, part("s4")]])
    yield Kernel("cover", "cover_part_whole_0", [[part("s4"), whole]])


def of_several_warps() -> Iterator[Kernel]:
    for shape, counts in (
        ("s4", (2, 4, 8, 16)),
        ("s8", (2, 4, 6, 8, 12)),
        ("s16", (2, 4, 6, 7, 8)),
        ("s32", (1, 2, 3, 4)),
    ):
        for warps in counts:
            launch = {"warps": warps, "warp_pitch": 32 * SHAPES[shape][1], "pitch": 65536, "together": True}
            yield Kernel("open", f"open_{shape}_{warps}", [[part(shape), part(shape, 1)]], **launch)
    for warps in (1, 2, 4, 8, 16, 32):
        for gap, name in ((320, "step"), (0, "drift")):
            launch = {"warps": warps, "warp_pitch": 512, "pitch": 16384, "together": gap > 0, "gap": gap}
            yield Kernel("many", f"many_{warps}_{name}", [[part("s16", i) for i in range(4)]], **launch)
    for warps in (2, 4, 8, 16):
        for size in (2, 4, 8):
            store = Store(12 if size < 8 else 8, size, size)
            launch = {"warps": warps, "warp_pitch": 32 * size, "together": True}
            yield Kernel("rows", f"rows_{warps}_{size}", [[store]], **launch)
    for warps in (1, 2, 4, 8):
        for rows in (256, 512, 558, 640):
            for offset in (0, 6, 64):
                stores = [Store(offset + 2 * i, 2, 8, rows) for i in range(4)]
                launch = {"warps": warps, "warp_pitch": 2 * rows, "together": True, "pitch": 32768}
                yield Kernel("tiles", f"tiles_{warps}_{rows}_{offset}", [list(stores)], **launch)
    for warps in (2, 8, 32):
        store = Store(0, 4, 1024)
        yield Kernel(
            "scattered", f"scattered_{warps}_32", [[store]], warps=warps, warp_pitch=4, pitch=32768, together=True
        )


def of_dram() -> Iterator[Kernel]:
    for megabytes in (16, 128):
        ctas = (megabytes << 20) // 16384
        launch = {"warps": 4, "rounds": 1, "warp_pitch": 4096, "cta_pitch": 16384, "grid": ctas, "gap": 0}
        halves = [Store(1024 * i + offset, 16, 32) for i in range(4) for offset in (0, 16)]
        for name, stores in {
            "4_of_32": [Store(1024 * i, 4, 32) for i in range(4)], "16_of_32": halves[::2],
            "whole": [Store(512 * i, 16, 16) for i in range(8)], "halves": halves,
        }.items():  # fmt: skip
            yield Kernel("dram", f"dram_{name}_{megabytes}", [list(stores)], **launch)


def all_kernels() -> list[Kernel]:
    return [*of_one_warp(), *of_several_warps(), *of_dram()]


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kernels = all_kernels()
    folder.joinpath("stores.ptx").write_text(HEAD + "\n".join(kernel.ptx() for kernel in kernels))
    told = [{"name": k.name, "grid": k.grid, "block": 32 * k.warps, "times": k.rounds * k.grid} for k in kernels]
    folder.joinpath("stores.json").write_text(json.dumps(told, indent=0))


def launch(folder: Path) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "reports" / "emulated"))
    from measure import call, open_device

    open_device()
    module, function, out = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuModuleLoadData", ctypes.byref(module), (folder / "stores.cubin").read_bytes())
    call("cuMemAlloc_v2", ctypes.byref(out), ctypes.c_size_t(BUFFER))
    for kernel in json.loads((folder / "stores.json").read_text()):
        call("cuModuleGetFunction", ctypes.byref(function), module, kernel["name"].encode())
        call("cuMemsetD32_v2", out, 0, ctypes.c_size_t(BUFFER // 4))
        values = [out, ctypes.c_uint32(0)]
        pointers = (ctypes.c_void_p * 2)(*[ctypes.addressof(value) for value in values])
        call("cuLaunchKernel", function, kernel["grid"], 1, 1, kernel["block"], 1, 1, 0, None, pointers, None)
        call("cuCtxSynchronize")


if __name__ == "__main__":
    {"write": write, "launch": launch}[sys.argv[1]](Path(sys.argv[2]))
