# SPDX-License-Identifier: Apache-2.0
"""Counting before, inside and after torch.profiler, which keeps CUPTI's callbacks."""

from steps import require, run, step


def counts_beside(found, where):
    import tilescope as ts
    from function import make_function

    function = make_function()
    function()
    for by in ("block", "kernel"):
        try:
            with ts.count(by=by) as c:
                function()
            found[f"{where}, by {by}"] = sum(row["measured.sm_l2_read_bytes"] for row in c.rows())
        except ts.CountersUnavailable as error:
            found[f"{where}, by {by}"] = f"refused ({error.reason}): {error}"
            require(by == "kernel", error)


@step
def beside_torchs_profiler():
    import torch

    found = {}
    counts_beside(found, "before")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        counts_beside(found, "inside")
    found["kernels that torch.profiler saw"] = sum("flash" in event.key for event in profiler.key_averages())
    counts_beside(found, "after")
    blocks = [value for name, value in found.items() if name.endswith("by block")]
    require(max(blocks) < 1.01 * min(blocks), found)
    return found


if __name__ == "__main__":
    run()
