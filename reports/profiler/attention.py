# SPDX-License-Identifier: Apache-2.0
# Attention forward and backward on three back ends of PyTorch and three shapes, round after round: what the profiler is
# held against Nsight Compute on. Usage: attention.py [ROUNDS [small]]
import sys
import torch, torch.nn.functional as F
from torch.nn.attention import sdpa_kernel, SDPBackend
torch.manual_seed(0)
LARGE = ((2,16,4096,128,False), (4,16,2048,64,True), (1,16,8192,128,True))  # the memory-efficient backward leaves L2
SMALL = ((1,8,2048,128,False), (2,16,1024,64,True), (1,8,4096,64,False))
SHAPES = SMALL if "small" in sys.argv else LARGE
for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
    for b,h,n,d,causal in SHAPES:
        for be in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
            q,k,v = (torch.randn(b,h,n,d,device='cuda',dtype=torch.float16,requires_grad=True) for _ in range(3))
            g = torch.randn(b,h,n,d,device='cuda',dtype=torch.float16)
            with sdpa_kernel(be):
                o = F.scaled_dot_product_attention(q,k,v,is_causal=causal)
                o.backward(g)
torch.cuda.synchronize(); print('checksum', float(q.grad.float().abs().mean()))
