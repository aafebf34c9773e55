# SPDX-License-Identifier: Apache-2.0
"""Problems are those of the calls that torch gets."""

import pytest

torch = pytest.importorskip("torch")
import tilescope as ts
import torch.nn.functional as F
from tilescope.captured import Captured

pytestmark = pytest.mark.torch


def tensors(heads_kv=4, seqlen_k=48, dtype=torch.bfloat16):
    q = torch.randn(2, 4, 48, 32, dtype=dtype)
    k, v = (torch.randn(2, heads_kv, seqlen_k, 32, dtype=dtype) for _ in range(2))
    return q, k, v


def test_a_call_names_the_problem():
    q, k, v = tensors(heads_kv=2)
    with Captured() as captured:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    assert out.shape == q.shape
    expected = ts.Problem(seqlen_q=48, heads=4, heads_kv=2, head_dim=32, batch=2, dtype="bf16", causal=True)
    assert captured.problem == expected


def test_layers_of_torch_are_seen():
    layer = torch.nn.MultiheadAttention(64, 4, batch_first=True)
    x = torch.randn(3, 20, 64)
    with Captured() as captured:
        layer(x, x, x, need_weights=False)
    assert captured.problem == ts.Problem(seqlen_q=20, heads=4, head_dim=16, batch=3, dtype="fp32")


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([], "no call of scaled_dot_product_attention"),
        ([{}, {"is_causal": True}], "must be given where the block does not compute one alone"),
        ([{"attn_mask": torch.ones(48, 48, dtype=torch.bool)}], "attn_mask = a tensor"),
    ],
)
def test_what_is_not_one_problem_must_be_typed(calls, said):
    q, k, v = tensors()
    with Captured() as captured:
        for options in calls:
            F.scaled_dot_product_attention(q, k, v, **options)
    with pytest.raises(ts.BadInput, match=said):
        _ = captured.problem


def test_a_causal_mask_of_unequal_lengths_must_be_typed():
    q, k, v = tensors(seqlen_k=96)
    with Captured() as captured:
        F.scaled_dot_product_attention(q, k, v, is_causal=True)
    with pytest.raises(ts.BadInput, match="top-left"):
        _ = captured.problem
