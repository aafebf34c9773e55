# SPDX-License-Identifier: Apache-2.0
"""Pages of torch tensors: those of numpy's to the bit, and a small model that serves with them as torch's math does."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tilescope as ts  # noqa: E402
from serving_model import PagedCache, PlainCache, Model, serve  # noqa: E402
from tilescope.torch import attention  # noqa: E402

_RANDOM = np.random.default_rng(20261126)
_LENGTHS = (40, 0, 17)


def _pools(dtype=np.float32):
    return (_RANDOM.standard_normal((9, 2, 16, 24)).astype(dtype) for _ in "kv")


def _table():
    return np.array([[7, 2, 4], [99, -1, 99], [0, 8, 99]])


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_tensors_give_the_bits_of_arrays(layout, dtype):
    q = _RANDOM.standard_normal((3, 4, 2, 24)).astype(dtype)
    k, v = _pools(dtype)
    expected, lse = ts.paged_attention(q, k, v, _table(), _LENGTHS, return_lse=True)
    tensors = [torch.from_numpy(array) for array in (q, k, v)]
    if layout == "bnhd":
        tensors = [tensor.transpose(1, 2).contiguous() for tensor in tensors]
    for table, lengths in ((_table(), _LENGTHS), (torch.from_numpy(_table()), torch.tensor(_LENGTHS))):
        out, own_lse = attention(*tensors, layout=layout, page_table=table, key_lengths=lengths, return_lse=True)
        out = out.transpose(1, 2) if layout == "bnhd" else out
        assert np.array_equal(out.numpy(), expected) and np.array_equal(own_lse.numpy(), lse)


def test_pools_in_fp8_beside_wider_queries():
    q = torch.from_numpy(_RANDOM.standard_normal((3, 4, 2, 24)).astype(np.float32))
    pools = [torch.from_numpy(pool).to(torch.float8_e4m3fn) for pool in _pools()]
    given = {"page_table": _table(), "key_lengths": _LENGTHS}
    with torch.no_grad():
        plain = attention(q, *pools, **given)
        assert torch.equal(plain, attention(q, *(pool.float() for pool in pools), **given))
        scaled = attention(q, *(s * pool.float() for s, pool in zip((0.5, 4.0), pools)), **given)
        assert torch.equal(scaled, attention(q, *pools, **given, descale_k=0.5, descale_v=4.0))
        of_heads = torch.tensor([[1.0, 2.0], [1.0, 1.0], [8.0, 0.5]])  # (B, Hkv)
        mixed = attention(q, *pools, **given, descale_k=of_heads / 4, descale_v=of_heads)
        for sequence, numbers in enumerate(of_heads.tolist()):
            for head, number in enumerate(numbers):
                alone = attention(q, *pools, **given, descale_k=number / 4, descale_v=number)
                heads = slice(2 * head, 2 * head + 2)
                assert torch.equal(mixed[sequence, heads], alone[sequence, heads])
    assert not torch.equal(scaled, plain)


@pytest.mark.parametrize(
    "change, told",
    [
        ({"descale_k": 0.5}, "descales are of fp8, not of fp16"),
        ({"k": torch.float8_e4m3fn}, "must hold torch.float8_e4m3fn like k"),
        ({"k": torch.float8_e4m3fn, "v": torch.float8_e4m3fn, "descale_v": torch.ones(3)}, "descale_v"),
        ({"k": torch.float8_e4m3fn, "v": torch.float8_e4m3fn, "descale_v": 1e9}, r"1e-06 ... 1e\+06"),
        ({"k": torch.float8_e5m2, "v": torch.float8_e5m2}, "must hold torch.float16 like q"),
    ],
)
def test_what_pools_in_fp8_do_not_go_with_is_refused(change, told):
    q = torch.zeros(3, 4, 2, 24, dtype=torch.float16)
    k, v = (torch.from_numpy(pool).to(change.pop(name, torch.float16)) for name, pool in zip("kv", _pools()))
    with pytest.raises(ts.BadInput, match=told):
        attention(q, k, v, page_table=_table(), key_lengths=_LENGTHS, **change)
    with pytest.raises(ts.BadInput):
        attention(q, q.to(torch.float8_e4m3fn), q.to(torch.float8_e4m3fn))


@pytest.mark.parametrize(
    "change, told",
    [
        ({"key_lengths": None}, "key_lengths"),
        ({"page_table": None}, "page_table"),
        ({"key_lengths": (40, 0)}, "key_lengths"),
        ({"page_table": np.full((3, 3), 9)}, r"page_table\[0, 0\] = 9: must be one of the 9 pages"),
        ({"dropout": 0.5}, "dropout"),
        ({"backward": "fused"}, "backward"),
        ({"causal": True}, "longest sequence"),
        ({"kernel": "gpu:standard"}, "pages"),
    ],
)
def test_what_pages_do_not_go_with_is_refused(change, told):
    q = torch.zeros(3, 4, 2, 24, dtype=torch.float16)
    k, v = (torch.from_numpy(pool) for pool in _pools(np.float16))
    with pytest.raises(ts.BadInput, match=told):
        attention(q, k, v, **{"page_table": _table(), "key_lengths": _LENGTHS, **change})


def test_gradients_are_refused_and_compiled_code_calls_it():
    q = torch.zeros(3, 4, 2, 24, requires_grad=True)
    k, v = (torch.from_numpy(pool) for pool in _pools())
    with pytest.raises(ts.BadInput, match="no backward pass"):
        attention(q, k, v, page_table=_table(), key_lengths=_LENGTHS)
    with torch.no_grad():
        expected = attention(q, k, v, page_table=_table(), key_lengths=_LENGTHS)
    assert torch.equal(expected, attention(q.detach(), k, v, page_table=_table(), key_lengths=_LENGTHS))


def test_a_model_serves_the_tokens_of_torchs_math():
    model = Model(seed=5)
    prompts = [torch.randint(0, model.vocabulary, (length,), generator=model.dice) for length in (37, 5, 64)]
    expected = serve(model, prompts, 64, PlainCache(model))
    assert len(set(map(tuple, expected))) == 3 and all(len(set(tokens)) > 8 for tokens in expected)
    assert serve(model, prompts, 64, PagedCache(model, page_size=16, seed=1)) == expected
