# SPDX-License-Identifier: Apache-2.0
"""What a call costs beside its kernel."""

import time
from pathlib import Path
from statistics import median

from tilescope import _native

MOST_OVER_KERNEL = 1.05


def kernel_and_call(monkeypatch, call):
    """Seconds of the kernel, timed inside on an output that it has written before, and of the call with all that is
    round it, timed outside: medians of turns, of up to 60 while the call's is beyond what it may be."""
    forward, given = _native.attention_forward, []

    def noticed(*arguments):
        given.append(arguments)
        return forward(*arguments)

    monkeypatch.setattr(_native, "attention_forward", noticed)
    held = call()  # the arguments point to it
    kernel, whole = [], []
    while len(kernel) < 60:
        kernel.append(forward(*given[0]))
        start = time.perf_counter()
        call()
        whole.append(time.perf_counter() - start)
        if len(kernel) >= 9 and median(whole) <= MOST_OVER_KERNEL * median(kernel):
            break
    del held
    return median(kernel), median(whole)


def told(name, kernel, whole):
    return f"{name}: kernel {1e3 * kernel:.2f} ms, call {1e3 * whole:.2f} ms, {100 * (whole / kernel - 1):+.1f} %"


def reads_of(call):
    """Read system calls of this process while `call` runs, and while nothing does."""
    counters = Path("/proc/self/io")

    def so_far():
        return next(int(line.split()[1]) for line in counters.read_text().splitlines() if line.startswith("syscr"))

    before = so_far()
    between = so_far()
    call()
    return so_far() - between, between - before
