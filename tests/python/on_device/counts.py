# SPDX-License-Identifier: Apache-2.0
"""Counting in the process: from before torch has a context to the replay of its graphs."""

import time

from steps import by_definition, bytes_of, close, make_qkv, require, run, step


@step
def before_torch_has_a_context():
    """The first CUDA work of the process is inside the block."""
    import tilescope as ts

    began = time.monotonic()
    with ts.count(name="first work") as c:
        import torch

        a = torch.zeros(64 * 2**20, dtype=torch.uint8, device="cuda")
    (row,) = c.rows()
    require(row["measured.dram_write_bytes"] >= 0.9 * a.numel(), row)
    facts = ts.info()
    return {"info": facts, "row": bytes_of([row]), "elapsed_s": time.monotonic() - began}


@step
def a_function_is_counted():
    """As a block and kernel by kernel; a graph that was captured before; what the function returns is its own."""
    import tilescope as ts
    import torch
    from function import make_function

    function = make_function()
    expected = function()
    blocks = []
    for _ in range(3):
        began = time.monotonic()
        with ts.count() as c:
            result = function()
        blocks.append({**c.rows()[0], "elapsed_s": round(time.monotonic() - began, 3)})
        require(torch.equal(result, expected), "the function returned something else")
    with ts.count(by="kernel") as c:
        function()
    kernels = c.rows()
    summed = sum(row["measured.sm_l2_read_bytes"] for row in kernels)
    block = blocks[-1]["measured.sm_l2_read_bytes"]
    require(abs(summed - block) < 0.01 * block, "kernels", summed, "block", block)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    graph.replay()
    with ts.count() as c:
        graph.replay()
    replayed = c.rows()[0]["measured.sm_l2_read_bytes"]
    require(abs(replayed - block) < 0.01 * block, "graph", replayed, "block", block)
    with ts.count(by="kernel") as c:
        graph.replay()
    elapsed_s = [block["elapsed_s"] for block in blocks]
    return {
        "blocks": bytes_of(blocks),
        "elapsed_s": elapsed_s,
        "kernels": len(kernels),
        "graph": replayed,
        "graph by kernel": bytes_of(c.rows()),
    }


@step
def an_idle_device():
    """What DRAM counters see while this process does nothing: the longer a block, the more of it is not the block's."""
    import tilescope as ts

    found = []
    for sleep_s in (0.01, 0.4, 1.2):
        with ts.count(l2="warm") as c:
            time.sleep(sleep_s)
        (row,) = c.rows()
        found.append(
            {key.partition(".")[2]: row[key] for key in row if "dram_" in key and "bytes" in key or "duration" in key}
        )
    return found


@step
def two_devices():
    import torch

    if torch.cuda.device_count() < 2:
        return {"left out": "there is one device"}
    import tilescope as ts
    from tilescope.torch import attention

    torch.cuda.set_device(0)
    q, k, v = (tensor.detach() for tensor in make_qkv(torch.float16, device="cuda:1"))
    with ts.count(device="cuda:1") as c:
        out = attention(q, k, v, causal=True)
    require(torch.cuda.current_device() == 0, "the current device is another")
    close("second device", out, by_definition(q, k, v, True), 4e-3)
    return {"second device": bytes_of(c.rows())}


if __name__ == "__main__":
    run()
