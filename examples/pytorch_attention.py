#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention as somebody's script has it: what profile_pytorch.sh counts the bytes of."""

import torch
import torch.nn.functional as F

batch, heads, seqlen, head_dim = 2, 16, 4096, 128
q, k, v = (torch.randn(batch, heads, seqlen, head_dim, dtype=torch.float16, device="cuda") for _ in range(3))
with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
    F.scaled_dot_product_attention(q, k, v)
torch.cuda.synchronize()
