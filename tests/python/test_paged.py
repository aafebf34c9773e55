# SPDX-License-Identifier: Apache-2.0
"""Keys and values in pages: the results of attention on them side by side, whatever the order of the pages."""

import numpy as np
import pytest

import tilescope as ts

_RANDOM = np.random.default_rng(20261126)
_LENGTHS = (70, 0, 33)
_PAGE = 16


def _inputs(dtype=np.float32, columns_v=24):
    q = _RANDOM.standard_normal((3, 4, 2, 24)).astype(dtype)
    k, v = (_RANDOM.standard_normal((3, 2, max(_LENGTHS), columns)).astype(dtype) for columns in (24, columns_v))
    return q, k, v


def _in_pages(arrays, order):
    """Pools with two pages that belong to nobody, and the table; behind the keys of a sequence it names no page."""
    counts = [-(-length // _PAGE) for length in _LENGTHS]
    pages = iter(order)
    table = np.full((3, max(counts) + 1), 10**6, np.int64)
    pools = [np.full((len(order), 2, _PAGE, array.shape[3]), np.nan, array.dtype) for array in arrays]
    for sequence, count in enumerate(counts):
        for place in range(count):
            table[sequence, place] = page = next(pages)
            keys = slice(place * _PAGE, min((place + 1) * _PAGE, _LENGTHS[sequence]))
            for pool, array in zip(pools, arrays):
                pool[page, :, : keys.stop - keys.start] = array[sequence, :, keys]
    return *pools, table


def _check_same(results, expected):
    for result, right in zip(results, expected):
        assert result.dtype == right.dtype and result.tobytes() == right.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("kernel", ["cpu:standard", "cpu:flash1", "cpu:flash2"])
def test_pages_in_any_order_give_the_same_bits(dtype, kernel):
    q, k, v = _inputs(dtype)
    options = {"kernel": kernel, "return_lse": True}
    expected = ts.attention(q, k, v, key_lengths=_LENGTHS, **options)
    for seed in (1, 2):
        order = np.random.default_rng(seed).permutation(11)
        results = ts.paged_attention(q, *_in_pages((k, v), order), _LENGTHS, **options)
        _check_same(results, expected)
    assert np.isneginf(expected[1][1]).all()  # the sequence without keys


def test_masks_of_equal_lengths():
    q, k, v = _inputs()
    pools = [array.transpose(0, 2, 1, 3)[:, :64].reshape(12, _PAGE, 2, 24) for array in (k, v)]
    expected = ts.attention(q, k[:, :, :64], v[:, :, :64], causal=True, window=(9, 0))
    q_by_rows = q.transpose(0, 2, 1, 3)
    table = np.arange(12).reshape(3, 4)
    out = ts.paged_attention(q_by_rows, *pools, table, (64, 64, 64), causal=True, window=(9, 0), layout="bnhd")
    assert np.array_equal(out.transpose(0, 2, 1, 3), expected)
    with pytest.raises(TypeError, match="integers"):
        ts.paged_attention(q_by_rows, *pools, table, (64.0, 64, 64), layout="bnhd")


def test_other_layouts_and_columns_of_values():
    q, k, v = _inputs(columns_v=8)
    expected = ts.attention(q, k, v, key_lengths=_LENGTHS)
    k_pages, v_pages, table = _in_pages((k, v), np.arange(11)[::-1])
    side_by_side = [np.ascontiguousarray(array.transpose(0, 2, 1, 3)) for array in (q, k_pages, v_pages)]
    out = ts.paged_attention(*side_by_side, table, _LENGTHS, layout="bnhd")
    assert np.array_equal(out.transpose(0, 2, 1, 3), expected)
    backwards = k_pages[:, :, :, ::-1].copy()[:, :, :, ::-1]  # whose elements lie the other way round
    assert np.array_equal(ts.paged_attention(q, backwards, v_pages, table, _LENGTHS), expected)


@pytest.mark.parametrize(
    "change, told",
    [
        ({"page_table": np.zeros((2, 5), int)}, "page_table"),
        ({"page_table": np.zeros((3, 5))}, "integers"),
        ({"page_table": np.full((3, 5), 11)}, r"page_table\[0, 0\] = 11: must be one of the 11 pages"),
        ({"page_table": np.full((3, 5), -1)}, r"page_table\[0, 0\] = -1"),
        ({"page_table": np.full((3, 5), 2**40)}, "32 bits"),
        ({"key_lengths": (70, 0)}, "key_lengths"),
        ({"key_lengths": (70, 0, 200)}, "200"),
        ({"k_pages": np.zeros((11, 2, 12, 24), np.float32), "v_pages": np.zeros((11, 2, 12, 24), np.float32)}, "page_size"),
        ({"v_pages": np.zeros((10, 2, 16, 24), np.float32)}, "v_pages"),
        ({"k_pages": np.zeros((11, 2, 16, 24), np.float16)}, "float32 like q"),
        ({"k_pages": np.zeros((11, 2, 16, 32), np.float32)}, "head size"),
        ({"k_pages": np.zeros((11, 16, 2, 24), np.float32), "v_pages": np.zeros((11, 16, 2, 24), np.float32)},
         r'heads_kv = 16: must divide heads = 4; layout="bhnd" reads .* layout="bnhd" pools as \(pages, page_size, Hkv, D\)'),
        ({"k_pages": np.zeros((11, 2, 24), np.float32)}, r"four dimensions; .* pools as \(pages, Hkv, page_size, D\)"),
        ({"kernel": "gpu:standard"}, "in pages"),
        ({"causal": True}, "longest sequence"),
        ({"window": (20, 0)}, "longest sequence"),
    ],
)
def test_what_does_not_go_together_is_refused(change, told):
    q, k, v = _inputs()
    k_pages, v_pages, table = _in_pages((k, v), np.arange(11))
    given = {"k_pages": k_pages, "v_pages": v_pages, "page_table": table, "key_lengths": _LENGTHS, **change}
    if "kernel" in change:
        given = {name: array.astype(np.float16) if name.endswith("_pages") else array for name, array in given.items()}
        q = q.astype(np.float16)
    with pytest.raises(ts.BadInput, match=told):
        ts.paged_attention(q, **given)
