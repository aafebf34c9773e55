# SPDX-License-Identifier: Apache-2.0
"""Repeated measurements, and samples against time."""

import functools
import json
import tempfile
from pathlib import Path

from steps import bytes_of, make_qkv, require, run, step


def work():
    """Some milliseconds."""
    import torch
    from tilescope.torch import attention

    q, k, v = inputs()
    for _ in range(20):
        attention(q, k, v, causal=True)
    torch.cuda.synchronize()


@functools.cache
def inputs():
    import torch

    size = {"batch": 2, "heads": 16, "heads_kv": 16, "seqlen_q": 4096, "seqlen_k": 4096, "head_dim": 128}
    return [tensor.detach() for tensor in make_qkv(torch.float16, **size)]


def sampled(interval_us=100, rounds=1):
    import tilescope as ts

    try:
        samples = ts.timeline(lambda: [work() for _ in range(rounds)], interval_us=interval_us)
    except ts.MachineLacks as error:
        return {"interval_us": interval_us, "rounds": rounds, "error": str(error)}
    busy = [row for row in samples.rows() if row["sm_active_share"] > 0.5]
    found = {"interval_us": interval_us, "rounds": rounds, "samples": len(samples.rows()), "busy": len(busy)}
    return found | {"tensor_share": max((row["tensor_share"] for row in busy), default=0), "of": samples}


@step
def sampled_against_time():
    """Short and long work, and a trace that is JSON."""
    work()
    found = [sampled(), sampled(rounds=10), sampled(interval_us=20), sampled(interval_us=1000, rounds=10), sampled()]
    samples = [entry.pop("of", None) for entry in found]
    failed = AssertionError(found)
    failed.found = found
    if not (found[0].get("busy") and found[0]["tensor_share"] > 0.1 and all(entry.get("busy") for entry in found)):
        raise failed
    path = Path(tempfile.mkdtemp()) / "use.json"
    samples[0].trace(path)
    return {"timelines": found, "events": len(json.loads(path.read_text())["traceEvents"])}


@step
def measured():
    """Medians and a time, beside the formula."""
    import tilescope as ts
    import torch
    from tilescope.torch import attention

    q, k, v = inputs()
    problem = ts.Problem.of(q, k, v, causal=True)
    (row,) = ts.measure(attention, q, k, v, causal=True, launches=3).rows()
    hopper = torch.cuda.get_device_capability() == (9, 0)
    (formula,) = ts.closed_form(problem, "gpu:flash3" if hopper else "gpu:flash2-mma").rows()
    ratio = row["measured.sm_l2_read_bytes"] / formula["closed_form.sm_l2_read_bytes"]
    require(0.98 < ratio < 1.1, "counted over formula", ratio)
    return {"counted over formula": ratio, "measured": bytes_of([row]), "time_s": row.get("measured.time")}


@step
def sampled_after_others():
    """After a measurement, and after torch.profiler, which keeps CUPTI's callbacks."""
    import torch

    found = {"after a measurement": sampled()}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
        work()
    found["after torch.profiler"] = sampled()
    for entry in found.values():
        entry.pop("of", None)
    require(found["after a measurement"].get("busy"), found)
    return found


if __name__ == "__main__":
    run()
