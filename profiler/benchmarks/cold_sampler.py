# SPDX-License-Identifier: Apache-2.0
"""Times of work that begins with an empty L2, as profiler/timing/cold_timer.hpp takes them of our own."""

import statistics
import time

import torch


class ColdSampler:
    """Samples of work that begins with an L2 that holds none of its lines."""

    L2_MULTIPLES = 4
    # While the device spins the host enqueues the rest, so that no launch latency comes between the events. As long in
    # all as our own kernels rest before a sample: rest_s of device_benchmarks.hpp.
    SPIN_CYCLES = 500_000

    def __init__(self):
        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self.buffer = torch.zeros(self.L2_MULTIPLES * l2_bytes // 4, device="cuda")
        self.total = torch.zeros((), device="cuda")
        self.begin = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)
        self.spun = torch.cuda.Event(enable_timing=True)
        self.clocks_hz = []  # of the SMs, right after each sample

    def sample(self, work):
        torch.sum(self.buffer, dim=0, out=self.total)
        torch.cuda._sleep(self.SPIN_CYCLES)
        self.begin.record()
        work()
        self.end.record()
        torch.cuda._sleep(self.SPIN_CYCLES)
        self.spun.record()
        self.spun.synchronize()
        self.clocks_hz.append(self.SPIN_CYCLES / (1e-3 * self.end.elapsed_time(self.spun)))
        return 1e-3 * self.begin.elapsed_time(self.end)

    def samples(self, work, rule):
        for _ in range(rule["warm_up"]):
            work()
        torch.cuda.synchronize()
        began = time.monotonic()
        samples = []
        self.clocks_hz.clear()
        while len(samples) < rule["max_samples"]:
            if samples and time.monotonic() - began >= rule["time_limit_s"]:
                break
            samples.append(self.sample(work))
            if len(samples) < rule["min_samples"] or sum(samples) < rule["min_time_s"]:
                continue
            if statistics.stdev(samples) / statistics.mean(samples) <= rule["max_noise"]:
                break
        return samples
