# SPDX-License-Identifier: Apache-2.0
# Attention as it was written before kernels were fused, at GPT-2 medium: product, padding mask, softmax, dropout,
# product, forward and backward, in fp16. Beside it kernels draw the inputs alone.
import torch

batch, heads, seqlen, head_dim = 64, 16, 1024, 64
torch.manual_seed(1)


def tensor():
    return torch.randn(batch * heads, seqlen, head_dim, device="cuda", dtype=torch.float16, requires_grad=True)


q, k, v = tensor(), tensor(), tensor()
dout = torch.randn_like(v)
hidden = torch.zeros(batch, 1, 1, seqlen, device="cuda", dtype=torch.bool)
hidden[::2, ..., -7:] = True


def attention():
    scores = torch.empty(batch * heads, seqlen, seqlen, device="cuda", dtype=torch.float16)
    scores = torch.baddbmm(scores, q, k.transpose(1, 2), beta=0, alpha=head_dim**-0.5)
    scores = scores.view(batch, heads, seqlen, seqlen).masked_fill(hidden, float("-inf"))
    probs = torch.nn.functional.dropout(torch.softmax(scores, dim=-1), 0.1)
    return torch.bmm(probs.view(batch * heads, seqlen, seqlen), v)


attention().backward(dout)
torch.cuda.synchronize()
