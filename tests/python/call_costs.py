# SPDX-License-Identifier: Apache-2.0
"""What a call costs beside its kernel."""

import time
from pathlib import Path
from statistics import median

from tilescope import _native

MOST_OVER_KERNEL = 0.05
_TURNS = 15


def costs_of(monkeypatch, call):
    """Medians of turns, in seconds: of the kernel on an output that it has written before; of a call; and what the call
    takes of the processor beside its own kernel, which the kernel's first touch of a new output is part of. The last is
    this thread's own time: other work on the machine delays it, but does not count."""
    forward, given, inside = _native.attention_forward, [], []

    def noticed(*arguments):
        given.append(arguments)
        start = time.thread_time()
        seconds = forward(*arguments)
        inside.append(time.thread_time() - start)
        return seconds

    monkeypatch.setattr(_native, "attention_forward", noticed)
    held = call()  # the arguments point to it
    kernel, whole, beside = [], [], []
    for _ in range(_TURNS):
        kernel.append(forward(*given[0]))
        start, start_here = time.perf_counter(), time.thread_time()
        call()
        whole.append(time.perf_counter() - start)
        beside.append(time.thread_time() - start_here - inside[-1])
    del held
    return median(kernel), median(whole), median(beside)


def told(name, kernel, whole, beside):
    return f"{name}: kernel {1e3 * kernel:.2f} ms, call {1e3 * whole:.2f} ms, of which {1e3 * beside:.2f} beside its kernel"


def reads_of(call):
    """Read system calls of this process while `call` runs, and while nothing does."""
    counters = Path("/proc/self/io")

    def so_far():
        return next(int(line.split()[1]) for line in counters.read_text().splitlines() if line.startswith("syscr"))

    before = so_far()
    between = so_far()
    call()
    return so_far() - between, between - before
