# SPDX-License-Identifier: Apache-2.0
"""A PyTorch function that nobody of TileScope wrote: causal attention forward and backward, and a matrix product.

As a program it calls the function twice, for ncu and `tilescope profile` to look at the second call.
"""

import torch


def make_function():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 16, 4096, 128, device="cuda", dtype=torch.float16).requires_grad_() for _ in range(3))
    gradient = torch.randn_like(q)
    weight = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)

    def function():
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(out, (q, k, v), gradient)
        return weight @ weight

    return function


if __name__ == "__main__":
    function = make_function()
    for _ in range(2):
        function()
    torch.cuda.synchronize()
