# SPDX-License-Identifier: Apache-2.0
"""Attention on arrays, held to the judge."""

from pathlib import Path

import numpy as np
import pytest
import tilescope as ts
from tilescope import _native
from call_costs import MOST_OVER_KERNEL, costs_of, reads_of, told
from conftest import normal

TOLERANCE = {np.float32: 2e-6, np.float16: 2e-3}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"causal": True}, {"window": (40, 8)}, {"scale": 0.3}, {"dropout": 0.2, "seed": 7}, {"key_lengths": [70, 9]},
        {"window": (20, 0), "mask": "sink:4"}, {"causal": True, "mask": "prefix:40"},
    ],  # fmt: skip
    ids=["plain", "causal", "window", "scale", "dropout", "padding", "sink", "prefix"],
)
@pytest.mark.parametrize("kernel", ["cpu:standard", "cpu:flash1", "cpu:flash2"])
def test_forward_and_backward_are_the_judges(qkv, dtype, options, kernel):
    q, k, v = qkv(dtype)
    dout = normal(q.shape, 4, dtype)
    out, lse = ts.attention(q, k, v, kernel=kernel, return_lse=True, **options)
    dq, dk, dv = ts.attention_backward(dout, q, k, v, out, lse, kernel=kernel, **options)
    exact = ts.exact_attention(q, k, v, dout, **options)
    for name, result in {"out": out, "dq": dq, "dk": dk, "dv": dv}.items():
        assert result.dtype == dtype and result.shape == exact[name].shape and result.flags.c_contiguous
        assert np.abs(result - exact[name]).max() <= 10 * TOLERANCE[dtype] * max(1, np.abs(exact[name]).max()), name
    np.testing.assert_allclose(lse, exact["lse"], rtol=2e-3 if dtype is np.float16 else 1e-5)


def test_documents_side_by_side_do_not_see_each_other():
    lengths = [37, 0, 1, 62]
    q, k, v = (normal((1, 2, sum(lengths), 16), seed, np.float32) for seed in (1, 2, 3))
    packed = ts.attention(q, k, v, causal=True, mask="documents:37,0,1,62")
    for first, length in zip(np.cumsum([0, *lengths]), lengths):
        rows = np.s_[:, :, first : first + length]
        if length:
            np.testing.assert_allclose(packed[rows], ts.attention(q[rows], k[rows], v[rows], causal=True), atol=2e-6)
    with pytest.raises(ts.BadInput, match="sum to seqlen = 100, not to 99"):
        ts.attention(q, k, v, mask="documents:37,62")
    with pytest.raises(TypeError, match=r"mask must be a text.*shape \(3, 5\)"):
        ts.attention(q, k, v, mask=np.ones((3, 5), bool))


def test_a_plain_softmax_agrees_with_the_judge(qkv):
    q, k, v = (a.astype(np.float64) for a in qkv(heads_kv=4))
    scores = q @ k.swapaxes(-1, -2) / 8
    probs = np.exp(scores - scores.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    exact = ts.exact_attention(*(a.astype(np.float32) for a in (q, k, v)))
    np.testing.assert_allclose(exact["out"], probs @ v, rtol=0, atol=1e-12)


def test_packed_queries_keys_and_values_and_transposed_values(qkv):
    q, k, v = qkv(heads_kv=4, seqlen_k=129)
    packed = np.stack([a.swapaxes(1, 2) for a in (q, k, v)], axis=2)  # (B, N, 3, H, D)
    transposed = np.ascontiguousarray(v.swapaxes(-1, -2))  # (B, H, D, N)
    expected = ts.attention(q, k, v, causal=True)
    out = ts.attention(*(packed[:, :, part] for part in range(3)), causal=True, layout="bnhd")
    np.testing.assert_array_equal(out.swapaxes(1, 2), expected)
    np.testing.assert_array_equal(ts.attention(q, k, transposed.swapaxes(-1, -2), causal=True), expected)


def test_padding_as_lengths_and_as_booleans(qkv):
    q, k, v = qkv()
    mask = np.arange(k.shape[2]) < np.array([[150], [7]])
    expected = ts.attention(q, k, v, key_lengths=[150, 7])
    k[1, :, 7:] = v[1, :, 7:] = np.nan  # nobody reads it
    np.testing.assert_array_equal(ts.attention(q, k, v, key_lengths=mask), expected)
    swapped = (a.swapaxes(1, 2) for a in (q, k, v))
    np.testing.assert_array_equal(ts.attention(*swapped, key_lengths=mask, layout="bnhd").swapaxes(1, 2), expected)
    mask[0, 3] = False
    for bad, message in ((mask, "true up to the padding"), (mask[:, 1:], "shape"), ([7], "one a batch entry")):
        with pytest.raises(ts.BadInput, match=message) as caught:
            ts.attention(q, k, v, key_lengths=bad)
        assert caught.value.field == "key_lengths"


def test_strides_of_any_kind(qkv):
    q, k, v = qkv()
    expected = ts.attention(q, k, v, causal=True)
    reversed_twice = np.ascontiguousarray(q[..., ::-1])[..., ::-1]
    assert reversed_twice.strides[-1] < 0
    columns_first = np.asfortranarray(k)
    every_other = np.repeat(v, 2, axis=2)[:, :, ::2]
    np.testing.assert_array_equal(ts.attention(reversed_twice, columns_first, every_other, causal=True), expected)
    one = np.broadcast_to(q[:1], q.shape)
    assert one.strides[0] == 0
    np.testing.assert_array_equal(ts.attention(one, k, v), ts.attention(one.copy(), k, v))


def test_arrays_are_computed_on_where_they_are(python):
    snippet = """
import resource, numpy as np, tilescope as ts
k = np.ones((1, 1, 1 << 18, 64), np.float32)
v = np.ones_like(k)
ts.attention(k[:, :, :1], k[:, :, :64], v[:, :, :64])  # threads and what they need
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ts.attention(k[:, :, :1], k, v)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    assert int(python(snippet)) < 32 * 1024  # KiB; copies of k and v are four times that


def test_layout_bnhd_is_the_transposed_one(qkv):
    q, k, v = qkv()
    swapped = [np.ascontiguousarray(a.swapaxes(1, 2)) for a in (q, k, v)]
    out, lse = ts.attention(q, k, v, return_lse=True)
    out_bnhd, lse_bnhd = ts.attention(*swapped, layout="bnhd", return_lse=True)
    np.testing.assert_array_equal(out_bnhd, out.swapaxes(1, 2))
    np.testing.assert_array_equal(lse_bnhd, lse)
    dout = normal(q.shape, 4)
    gradients = ts.attention_backward(dout, q, k, v, out, lse)
    gradients_bnhd = ts.attention_backward(dout.swapaxes(1, 2), *swapped, out_bnhd, lse, layout="bnhd")
    for one, other in zip(gradients, gradients_bnhd):
        np.testing.assert_array_equal(one, other.swapaxes(1, 2))


def test_rows_that_see_no_key_are_zero():
    q, k, v = normal((1, 1, 9, 16), 1), normal((1, 1, 4, 16), 2), normal((1, 1, 4, 16), 3)
    out, lse = ts.attention(q, k, v, causal=True, return_lse=True)
    assert not out[:, :, :5].any() and np.isneginf(lse[:, :, :5]).all() and np.isfinite(lse[:, :, 5:]).all()


def test_read_only_and_dlpack_arrays(qkv):
    q, k, v = qkv()
    expected = ts.attention(q, k, v)

    class OnlyDlpack:
        def __init__(self, array):
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    np.testing.assert_array_equal(ts.attention(OnlyDlpack(q), OnlyDlpack(k), OnlyDlpack(v)), expected)
    q.flags.writeable = False
    np.testing.assert_array_equal(ts.attention(q, k, v), expected)


def test_an_array_on_a_device_is_refused_by_name(qkv):
    q, k, v = qkv()

    class OnDevice:
        shape, dtype = q.shape, q.dtype

        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(ts.BadInput, match="host memory") as caught:
        ts.attention(q, OnDevice(), v)
    assert caught.value.field == "k"


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        (lambda q, k, v: (q[0], k, v), "q", "four dimensions"),
        (lambda q, k, v: (q, k[..., :32], v), "k", "batch and head size"),
        (lambda q, k, v: (q, k, v[:, :, :-1]), "v", "heads and length of k"),
        (lambda q, k, v: (q, k.astype(np.float16), v), "k", "like q"),
        (lambda q, k, v: (q.astype(np.float64), k.astype(np.float64), v.astype(np.float64)), "dtype", "float64"),
        (lambda q, k, v: (q.astype(">f4"), k, v), "q", "byte order"),
        (lambda q, k, v: (q[:, :3], k, v), "heads_kv", "must divide heads = 3"),
        (lambda q, k, v: (q[:, :, :0], k, v), "seqlen_q", "must lie in"),
    ],
)
def test_what_cannot_be_is_refused_by_name(qkv, change, field, message):
    with pytest.raises(ts.BadInput, match=message) as caught:
        ts.attention(*change(*qkv()))
    assert caught.value.field == field


@pytest.mark.parametrize("call", [ts.attention, ts.exact_attention])
@pytest.mark.parametrize("block", [None, (64, 64)])
def test_wrong_shapes_are_refused_by_name_beside_descales(qkv, call, block):
    q, k, v = qkv()
    options = {"descale_q": np.ones((2, 2), np.float32), "descale_block": block}
    for change in (lambda a: a[0], lambda a: a[0, 0], lambda a: a[0, 0, 0], lambda a: a[None]):
        for name, arrays in {"q": (change(q), k, v), "k": (q, change(k), v), "v": (q, k, change(v))}.items():
            with pytest.raises(ValueError, match="four dimensions") as caught:
                call(*arrays, **options)
            assert caught.value.field == name
    with pytest.raises(ts.BadInput, match="layout"):
        call(q, k, v, layout="hbnd", **options)
    with pytest.raises(ts.BadInput, match="descale_q"):
        call(q, k, v, descale_q=np.ones(3, np.float32), descale_block=block)
    with pytest.raises(ts.BadInput, match="descale_block"):
        call(q, k, v, descale_q=options["descale_q"], descale_block=(0, 64))


def test_more_refusals(qkv):
    q, k, v = qkv()
    with pytest.raises(TypeError, match="q must be a numpy or DLPack array, not list"):
        ts.attention(q.tolist(), k, v)
    with pytest.raises(ts.UnknownName) as caught:
        ts.attention(q, k, v, kernel="cpu:flash")
    assert caught.value.nearest and caught.value.nearest[0].startswith("cpu:flash")
    with pytest.raises(ts.BadInput, match="seed"):
        ts.attention(q, k, v, dropout=0.1)
    with pytest.raises(ts.BadInput, match="layout"):
        ts.attention(q, k, v, layout="hbnd")
    with pytest.raises(ts.BadInput, match="block_m"):
        ts.attention(q, k, v, tile=(0, 64))
    out, lse = ts.attention(q, k, v, return_lse=True)
    with pytest.raises(ts.BadInput, match="only one order"):
        ts.attention_backward(out, q, k, v, out, lse, kernel="cpu:flash1", backward="split")
    with pytest.raises(ts.BadInput) as caught:
        ts.attention_backward(out, q, k, v, out, lse[..., :-1])
    assert caught.value.field == "lse"


@pytest.mark.parametrize(
    ("capability", "problem", "order", "kernel", "chosen_order"),
    [
        (0, {}, "deterministic", "cpu:flash2", "split"),
        (90, {}, "deterministic", "gpu:flash3", "ordered"),
        (90, {"dropout": 0.1}, "deterministic", "gpu:flash2-mma", "split"),
        (90, {"dtype": "fp32"}, "", "gpu:flash2-simt", None),
        (90, {"head_dim": 68}, "", "gpu:flash2-mma", None),
        (80, {}, "", "gpu:flash2-mma", None),
        (80, {}, "ordered", "gpu:flash2-mma", "ordered"),
        (90, {"softcap": 50}, "", "gpu:flash2-mma", None),
        (90, {"mask": "prefix:9", "causal": True}, "", "gpu:flash3", None),
        (90, {"learned_sink": True}, "", "gpu:flash3", None),
        (90, {"learned_sink": True}, "deterministic", "gpu:flash2-mma", "split"),
        (90, {"mask": "prefix:9", "causal": True, "head_dim": 192}, "", "gpu:flash2-mma", None),
        (90, {"mask": "prefix:9", "causal": True}, "deterministic", "gpu:flash2-mma", "split"),
        (90, {"mask": "prefix:9", "causal": True, "alibi": True}, "", "gpu:flash2-mma", None),
    ],
)
def test_the_fastest_kernel_that_computes_a_problem_is_chosen(capability, problem, order, kernel, chosen_order):
    problem = ts.Problem(**{"seqlen_q": 512, "heads": 2, "head_dim": 64, **problem})
    use = _native.choose_kernel(problem._handle, "", None, order, capability, True)
    assert (use.kernel, use.backward) == (kernel, chosen_order)


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        ({"softcap": 50, "head_dim": 256}, "gpu:flash3"),
        ({"alibi": True, "mask": "documents:500,12"}, "gpu:flash3"),
        ({"learned_sink": True, "window": (128, 0), "mask": "sink:4"}, "gpu:flash3"),
        ({"log_bias": 1.0}, "gpu:flash2-mma"),
        ({"mask": "prefix:9", "head_dim": 192}, "gpu:flash2-mma"),
        ({"page_size": 16, "causal": True}, "gpu:flash3"),
        ({"page_size": 256, "head_dim": 256}, "gpu:flash3"),
        ({"page_size": 16, "key_lengths": [9]}, "gpu:flash2-mma"),
        ({"page_size": 16, "seqlen_q": 1, "seqlen_k": 512}, "gpu:decode"),
    ],
)
def test_masks_modifiers_and_pages_go_forward_to_the_fastest_that_has_them(problem, kernel):
    problem = ts.Problem(**{"seqlen_q": 512, "heads": 2, "head_dim": 64, "causal": "mask" in problem, **problem})
    assert _native.choose_kernel(problem._handle, "", None, "", 90, False).kernel == kernel


@pytest.mark.parametrize("name", ["gemma2", "gpt-oss", "mpt"])
def test_presets_with_modifiers_are_flash3s_forward(name):
    assert _native.choose_kernel(ts.Problem.preset(name)._handle, "", None, "", 90, False).kernel == "gpu:flash3"


def test_few_queries_go_forward_to_the_kernel_that_is_made_for_them():
    few = ts.Problem(seqlen_q=1, seqlen_k=4096, heads=32, heads_kv=8, head_dim=128)
    many = ts.Problem(seqlen_q=5, seqlen_k=4096, heads=32, heads_kv=8, head_dim=128)

    def chosen(problem, capability, backward=False):
        return _native.choose_kernel(problem._handle, "", None, "", capability, backward).kernel

    assert [chosen(few, capability) for capability in (80, 90)] == ["gpu:decode"] * 2
    assert chosen(few, 90, backward=True) == chosen(many, 90) == "gpu:flash3"
    assert chosen(few, 0) == "cpu:flash2"


def test_a_kernel_of_a_gpu_is_told_apart_from_a_bad_name(qkv):
    if ts.info()["device_lack"] is None:
        pytest.skip("this machine can run it")
    q, k, v = qkv(np.float16)
    with pytest.raises(ts.MachineLacks, match="gpu:flash2-mma cannot run"):
        ts.attention(q, k, v, kernel="gpu:flash2-mma")


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_a_call_costs_little_over_its_kernel(monkeypatch, capsys, layout):
    q, k, v = normal((3, 1, 2048, 8, 64) if layout == "bnhd" else (3, 1, 8, 2048, 64), 1)
    kernel, call, beside = costs_of(monkeypatch, lambda: ts.attention(q, k, v, causal=True, layout=layout))
    with capsys.disabled():
        print(told(f"\ntilescope.attention, {layout}", kernel, call, beside))
    assert beside <= MOST_OVER_KERNEL * kernel


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this system counts no reads")
def test_a_call_in_place_asks_the_system_for_nothing(qkv):
    q, k, v = qkv()
    with_call, without = reads_of(lambda: ts.attention(q, k, v))
    assert with_call == without
