# SPDX-License-Identifier: Apache-2.0
"""Torch's own attention, with TileScope's kernels in the place of its flash attention."""

import pytest

torch = pytest.importorskip("torch")
import tilescope as ts

pytestmark = pytest.mark.torch


@pytest.fixture
def in_torchs_place(monkeypatch):
    """Torch's own attention goes by TileScope's kernels; a list with an entry for each call of one."""
    from tilescope.torch import launches, register_sdpa

    calls, forward = [], launches.forward
    monkeypatch.setattr(launches, "forward", lambda *given: (calls.append(given), forward(*given))[1])
    register_sdpa()
    torch.nn.attention.activate_flash_attention_impl("tilescope")
    yield calls
    torch.nn.attention.restore_flash_attention_impl(_raise_warn=False)


own = torch.nn.functional.scaled_dot_product_attention


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(48, 48), (64, 40), (40, 64)])
@pytest.mark.parametrize("way", ["called", "compiled"])
def test_in_torchs_place_its_attention_is_what_it_was(in_torchs_place, lengths, causal, way):
    queries, keys = lengths
    attend = torch.compile(own, fullgraph=True, backend="aot_eager") if way == "compiled" else own
    found = []
    for _ in range(2):
        torch.manual_seed(1)
        q, k, v = (torch.randn(2, 4, n, 32, requires_grad=True) for n in (queries, keys, keys))
        out = attend(q, k, v, is_causal=causal)
        found.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
        assert len(in_torchs_place) == 1
        torch.nn.attention.restore_flash_attention_impl(_raise_warn=False)
        attend = own
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        assert ours.stride() == theirs.stride()


def test_in_torchs_place_masks_are_refused(in_torchs_place):
    q = torch.randn(1, 2, 16, 32)
    with pytest.raises(ts.BadInput, match="attn_mask"):
        own(q, q, q, attn_mask=torch.zeros(16, 16))
    torch.nn.attention.restore_flash_attention_impl()
    own(q, q, q, attn_mask=torch.zeros(16, 16))
