# SPDX-License-Identifier: Apache-2.0
"""What a call costs the host."""

import statistics
import time

from steps import make_qkv, require, run, step

MOST_OF_TORCHS = 1.5


@step
def host_cost():
    """Microseconds of the host for a call on tensors so small that the device waits."""
    import torch
    from tilescope.torch import launches, scaled_dot_product_attention

    q, k, v = make_qkv(torch.float16, batch=1, heads=2, heads_kv=2, seqlen_q=64, seqlen_k=64)
    gradient = torch.randn_like(q)

    def microseconds(function, calls=50, rounds=9):
        """The median round; so few calls that the device's queue never makes the host wait."""
        times = []
        for _ in range(rounds):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(calls):
                function()
            times.append(1e6 * (time.perf_counter() - began) / calls)
        torch.cuda.synchronize()
        return round(statistics.median(times), 1)

    own = torch.nn.functional.scaled_dot_product_attention
    found = {}
    for name, attend in (("tilescope", scaled_dot_product_attention), ("torch", own)):
        with torch.no_grad():
            found[f"{name} forward"] = microseconds(lambda: attend(q, k, v, is_causal=True))
        found[f"{name} both"] = microseconds(
            lambda: torch.autograd.grad(attend(q, k, v, is_causal=True), (q, k, v), gradient)
        )
    options = (True, -1, -1, 0.125, 0.0, "", "", 0, 0)
    with torch.no_grad():
        forward = lambda: launches.forward(q, k, v, None, options, True)
        out, lse = forward()
        backward = lambda: launches.backward(gradient, q, k, v, out, lse, None, options)
        found["of ours, forward in the operator"] = microseconds(forward)
        found["of ours, backward in the operator"] = microseconds(backward)
        for passes, inputs in (("forward", (q, k, v)), ("backward", (gradient, q, k, v, out))):
            strides = tuple(tensor.stride() for tensor in inputs)
            backwards = passes == "backward"
            way = launches.way_of(q.device, q.dtype, q.shape, k.shape, q.stride(), strides, options, backwards)
            made = [torch.empty_strided(*place, dtype=dtype, device="cuda") for *place, dtype in way.made]
            placed = [*inputs, *([lse] if backwards else []), *made]
            addresses, stream = [tensor.data_ptr() for tensor in placed], torch.cuda.current_stream().cuda_stream
            found[f"of ours, {passes}'s launches"] = microseconds(lambda: way.launch.enqueue(stream, addresses, 0, 0))
    for passes in ("forward", "both"):
        ratio = found[f"tilescope {passes}"] / found[f"torch {passes}"]
        require(ratio <= MOST_OF_TORCHS, passes, "costs", ratio, "times torch's own call:", found)
    return found


if __name__ == "__main__":
    run()
