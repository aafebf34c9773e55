# SPDX-License-Identifier: Apache-2.0
"""Score modifiers, learned sinks and values of other columns, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import tilescope as ts

_SHAPE = {"batch": 2, "heads": 4, "heads_kv": 2, "seqlen_q": 33, "seqlen_k": 41, "head_dim": 16}


def _inputs(columns=16, layout="bhnd"):
    random = np.random.default_rng(7)
    q = random.standard_normal((2, 4, 33, 16)).astype(np.float32)
    k = random.standard_normal((2, 2, 41, 16)).astype(np.float32)
    v = random.standard_normal((2, 2, 41, columns)).astype(np.float32)
    dout = random.standard_normal((2, 4, 33, columns)).astype(np.float32)
    if layout == "bnhd":
        return tuple(np.ascontiguousarray(a.transpose(0, 2, 1, 3)) for a in (q, k, v, dout))
    return q, k, v, dout


def _by_numpy(q, k, v, *, softcap=None, slopes=None, sinks=None):
    """Causal attention in fp64. Returns out and lse."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    k, v = (np.repeat(a, 2, axis=1) for a in (k, v))
    scores = q @ k.swapaxes(-1, -2) / 4
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    distance = np.arange(41)[None, :] - np.arange(33)[:, None] - 8
    if slopes is not None:
        scores = scores - slopes[None, :, None, None] * np.abs(distance)
    scores = np.where(distance <= 0, scores, -np.inf)
    if sinks is not None:
        scores = np.concatenate([scores, np.broadcast_to(sinks[None, :, None, None], (2, 4, 33, 1))], axis=-1)
    most = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - most)
    total = weights.sum(axis=-1, keepdims=True)
    return (weights / total)[..., :41] @ v, (most + np.log(total))[..., 0]


@pytest.mark.parametrize("kernel", ["cpu:flash2", "cpu:standard"])
@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_modifiers_are_those_of_numpy(kernel, layout):
    slopes, sinks = np.array([0.5, 0.25, 0.1, 0.0]), np.array([1.5, -0.5, 0.0, -np.inf])
    expected, expected_lse = _by_numpy(*_inputs()[:3], softcap=2.0, slopes=slopes, sinks=sinks)
    mods = {"softcap": 2.0, "alibi": slopes, "learned_sink": sinks}
    inputs = _inputs(layout=layout)[:3]
    out, lse = ts.attention(*inputs, causal=True, kernel=kernel, layout=layout, return_lse=True, **mods)
    exact = ts.exact_attention(*inputs, causal=True, layout=layout, **mods)
    for result in (out, exact["out"]):
        result = result if layout == "bhnd" else result.transpose(0, 2, 1, 3)
        np.testing.assert_allclose(result, expected, atol=1e-5)
    np.testing.assert_allclose(lse, expected_lse, atol=1e-5)
    np.testing.assert_allclose(exact["lse"], expected_lse, atol=1e-12)


def test_alibi_without_slopes_has_those_of_its_paper():
    expected, _ = _by_numpy(*_inputs()[:3], slopes=2.0 ** (-2.0 * np.arange(1, 5)))
    np.testing.assert_allclose(ts.attention(*_inputs()[:3], causal=True, alibi=True), expected, atol=1e-5)


@pytest.mark.parametrize("backward", ["fused", "split", "q-outer", "single-launch"])
def test_gradients_are_those_of_the_judge_and_of_differences(backward):
    q, k, v, dout = _inputs()
    sinks = np.array([1.5, -0.5, 0.25, 0.0], np.float32)
    mods = {"softcap": 2.0, "alibi": True, "learned_sink": sinks}
    out, lse = ts.attention(q, k, v, causal=True, return_lse=True, **mods)
    gradients = ts.attention_backward(dout, q, k, v, out, lse, causal=True, backward=backward, **mods)
    exact = ts.exact_attention(q, k, v, dout, causal=True, **mods)
    for gradient, name in zip(gradients, ("dq", "dk", "dv", "dsink"), strict=True):
        np.testing.assert_allclose(gradient, exact[name], atol=2e-4)
    step = np.zeros(4, np.float32)
    step[1] = 2.0**-10

    def loss(sinks):
        return (ts.exact_attention(q, k, v, causal=True, **{**mods, "learned_sink": sinks})["out"] * dout).sum()

    difference = (loss(sinks + step) - loss(sinks - step)) / 2.0**-9
    np.testing.assert_allclose(exact["dsink"][1], difference, rtol=1e-5)


@pytest.mark.parametrize("columns", [8, 24])
def test_values_of_other_columns(columns):
    q, k, v, dout = _inputs(columns)
    out, lse = ts.attention(q, k, v, causal=True, return_lse=True)
    expected, _ = _by_numpy(q, k, v)
    assert out.shape == (2, 4, 33, columns)
    np.testing.assert_allclose(out, expected, atol=1e-5)
    exact = ts.exact_attention(q, k, v, dout, causal=True)
    gradients = ts.attention_backward(dout, q, k, v, out, lse, causal=True)
    for gradient, name in zip(gradients, ("dq", "dk", "dv"), strict=True):
        np.testing.assert_allclose(gradient, exact[name], atol=2e-4)
    with pytest.raises(ts.BadInput, match="columns of keys"):
        ts.attention(q, k, v, kernel="cpu:flash1")


def test_problems_have_them_too():
    problem = ts.Problem(**_SHAPE, softcap=50, alibi=True, learned_sink=True, head_dim_v=8)
    assert str(problem) == "B2 H4/2 Nq33 Nk41 D16/8 fp16 softcap 50 alibi learned-sink"
    assert problem.replace(softcap=None, head_dim_v=16) == ts.Problem(**_SHAPE, alibi=True, learned_sink=True)
    assert ts.Problem.preset("gpt-oss").learned_sink
    assert ts.Problem.preset("gemma2").softcap == 50
    assert ts.Problem(**_SHAPE, softcap=0, log_bias=0.0) == ts.Problem(**_SHAPE)
    assert ts.Problem.preset("deepseek-v3").head_dim_v == 128
    record = ts.simulate(problem, "cpu:flash2", machine="h200")
    assert record.json["runs"][0]["problem"]["softcap"] == 50


@pytest.mark.parametrize(
    ("mods", "error", "message"),
    [
        ({"softcap": -1.0}, ts.BadInput, "softcap"),
        ({"learned_sink": np.zeros(3)}, ts.BadInput, r"learned_sink.*\(4,\)"),
        ({"learned_sink": True}, ts.BadInput, r"learned_sink.*\(H,\)"),
        ({"alibi": np.zeros((4, 1))}, ts.BadInput, "alibi"),
        ({"soft_cap": 1.0}, TypeError, "softcap"),
        ({"alibi": True, "scale": 0.0}, ts.BadInput, "scale"),
        ({"alibi": True, "kernel": "cpu:flash1"}, ts.BadInput, "ALiBi"),
    ],
)
def test_what_cannot_be_is_refused(mods, error, message):
    with pytest.raises(error, match=message):
        ts.attention(*_inputs()[:3], **mods)
