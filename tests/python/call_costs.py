# SPDX-License-Identifier: Apache-2.0
"""What a call costs beside its kernel."""

import time
from pathlib import Path
from statistics import median

from tilescope import _native

MOST_OVER_KERNEL = 0.05
_TURNS = 15


def costs_of(monkeypatch, call):
    """Medians of turns, in seconds: of the kernel on an output that it has written before; of a call; and of a call whose
    kernel does nothing, which is what a call takes beside its kernel, first touch of a new output aside. The last is this
    thread's own time, which other work on the machine only delays, and of calls in a row: while a kernel runs the
    processor forgets the call's code, as it does while a process sleeps as long, by how much other work the host has."""
    forward, given = _native.attention_forward, []

    def noticed(*arguments):
        given[:] = arguments
        return 0.0

    with monkeypatch.context() as patch:
        patch.setattr(_native, "attention_forward", noticed)
        held = call()  # the arguments point to it
        arguments = tuple(given)
        beside = [_taken(time.thread_time, call) for _ in range(_TURNS)]
    kernel, whole = [], []
    for _ in range(_TURNS):
        kernel.append(forward(*arguments))
        whole.append(_taken(time.perf_counter, call))
    del held
    return median(kernel), median(whole), median(beside)


def _taken(clock, call):
    start = clock()
    call()
    return clock() - start


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
