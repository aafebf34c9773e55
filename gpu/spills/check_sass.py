#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads `cuobjdump --dump-sass` of Hopper kernels and fails where the machine code is not what was meant.

usage: cuobjdump --dump-sass FILE | check_sass.py EXPECTATION...
An expectation is KERNEL:SHAPExCOUNT[,SHAPExCOUNT...], for each kernel whose mangled name contains KERNEL: the HGMMA
and QGMMA shapes of its main loop (the innermost with exponentials) and how many of each, as 64x128x16x8. Besides, in that loop:
no loads or stores of local memory, two waits for products, and all its exponentials between them. Before the colon, ~ asks
for the shapes only, = for those and no local memory.
"""
import collections
import re
import sys


def kernels(lines):
    name, code = None, []
    for line in lines:
        function = re.search(r"Function : (\S+)", line)
        if function:
            if name:
                yield name, code
            name, code = function.group(1), []
        instruction = re.match(r"\s+/\*([0-9a-f]{4,6})\*/\s+(.*?)\s*;", line)
        if instruction:
            code.append((int(instruction.group(1), 16), instruction.group(2)))
    if name:
        yield name, code


def main_loop(code):
    """The instructions of the shortest loop that multiplies and exponentiates."""
    loops = []
    for address, text in code:
        target = re.search(r"BRA.* 0x([0-9a-f]+)$", text)
        if target and int(target.group(1), 16) < address:
            body = [t for a, t in code if int(target.group(1), 16) <= a <= address]
            if any("GMMA." in t for t in body) and any("MUFU.EX2" in t for t in body):
                loops.append(body)
    return min(loops, key=len, default=[])


def faults(kernel, code, expected):
    body = main_loop(code)
    if not body:
        return ["no loop with products and exponentials"]
    found = collections.Counter(m.group(1) for t in body if (m := re.search(r"[HQ]GMMA\.(\d+x\d+x\d+)", t)))
    problems = []
    if found != expected:
        problems.append(f"products {dict(found)}, not {dict(expected)}")
    if kernel.endswith("~"):
        return problems
    if any(re.search(r"\b(LDL|STL)\b", t) for t in body):
        problems.append("local memory is used")
    waits = [i for i, t in enumerate(body) if "DEPBAR.LE gsb0" in t]
    powers = [i for i, t in enumerate(body) if "MUFU.EX2" in t]
    if kernel.endswith("="):
        return problems
    if len(waits) < 2:
        problems.append(f"{len(waits)} waits for products")
    elif sum(waits[0] < i < waits[1] for i in powers) * 2 < len(powers) - 8:
        problems.append("exponentials do not stand between the waits")
    return problems


def main():
    expectations = {}
    for argument in sys.argv[1:]:
        kernel, shapes = argument.rsplit(":", 1)
        pairs = (shape.rsplit("x", 1) for shape in shapes.split(","))
        expectations[kernel] = collections.Counter({shape: int(count) for shape, count in pairs})
    failed, seen = False, set()
    for name, code in kernels(sys.stdin):
        for kernel, expected in expectations.items():
            if kernel.rstrip("~=") in name:
                seen.add(kernel)
                for problem in faults(kernel, code, expected):
                    print(f"{name}: {problem}")
                    failed = True
    for kernel in expectations.keys() - seen:
        print(f"no kernel {kernel}")
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
