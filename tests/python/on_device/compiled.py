# SPDX-License-Identifier: Apache-2.0
"""torch.compile, without and with CUDA graphs."""

from steps import close, make_qkv, run, step


@step
def compiled():
    """torch.compile without graph breaks, with gradients; and in graphs."""
    import torch
    from tilescope.torch import attention

    q, k, v = make_qkv(torch.float16, heads=4, heads_kv=4, seqlen_k=321)
    expected = torch.autograd.grad(attention(q, k, v, causal=True).square().sum(), (q, k, v))
    function = torch.compile(lambda *tensors: attention(*tensors, causal=True).square().sum(), fullgraph=True)
    found = {}
    ours = torch.autograd.grad(function(q, k, v), (q, k, v))
    found["default"] = [close("compiled", *pair, 4e-3) for pair in zip(ours, expected)]
    reduced = torch.compile(
        lambda *tensors: attention(*tensors, causal=True) * 2, mode="reduce-overhead", fullgraph=True
    )
    with torch.no_grad():
        for _ in range(3):
            torch.compiler.cudagraph_mark_step_begin()
            out = reduced(q, k, v).clone()
        found["reduce-overhead"] = close("in graphs", out, 2 * attention(q, k, v, causal=True), 4e-3)
    return found


if __name__ == "__main__":
    run()
