# SPDX-License-Identifier: Apache-2.0
"""Masks and score modifiers on CPU tensors, held to the judge, to torch's own attention and to differences."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import tilescope as ts
from tilescope.torch import attention

pytestmark = pytest.mark.torch

_SINKS = [0.5, -1.0, float("-inf"), 2.0]


def tensors(dtype=torch.float32, layout="bhnd", rows=65, grad=True):
    torch.manual_seed(2)
    made = [torch.randn(2, heads, n, 32, dtype=dtype) for heads, n in ((4, rows), (2, 65), (2, 65))]
    if layout == "bnhd":
        made = [tensor.transpose(1, 2).contiguous() for tensor in made]
    return [tensor.requires_grad_(grad) for tensor in made]


CASES = [
    {"causal": True, "mask": "documents:20,1,44"},
    {"window": (9, 0), "mask": "sink:3", "softcap": 1.5},
    {"causal": True, "alibi": True, "learned_sink": _SINKS},
    {"softcap": 2.0, "alibi": [0.5, 0.25, 0.1, 0.0], "log_bias": 0.3, "learned_sink": _SINKS, "dropout": 0.2, "seed": 4},
]


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_are_the_judges(case, layout):
    q, k, v = tensors(layout=layout)
    given = dict(case)
    if "learned_sink" in case:
        given["learned_sink"] = torch.tensor(case["learned_sink"], requires_grad=True)
    out, lse = attention(q, k, v, layout=layout, return_lse=True, **given)
    assert not lse.requires_grad
    dout = torch.randn_like(out)
    out.backward(dout)
    numbers = {n: np.array(x, np.float32) if isinstance(x, list) else x for n, x in case.items()}
    arrays = [tensor.detach().numpy() for tensor in (q, k, v, dout)]
    exact = ts.exact_attention(*arrays, layout=layout, **numbers)
    results = {"out": out, "lse": lse, "dq": q.grad, "dk": k.grad, "dv": v.grad}
    if "learned_sink" in case:
        results["dsink"] = given["learned_sink"].grad
    for name, result in results.items():
        np.testing.assert_allclose(result.detach().numpy(), exact[name], atol=3e-4, err_msg=name)


def test_arrays_module_hands_masks_and_modifiers_over():
    q, k, v = tensors(grad=False)
    given = {"causal": True, "mask": "prefix:7", "softcap": 3.0}
    ours = ts.attention(q, k, v, **given)
    assert isinstance(ours, torch.Tensor)
    arrays = [tensor.numpy() for tensor in (q, k, v)]
    np.testing.assert_array_equal(ours.numpy(), ts.attention(*arrays, **given))


def test_no_modifier_is_the_call_without():
    q, k, v = tensors(grad=False)
    plain = attention(q, k, v, causal=True)
    torch.testing.assert_close(attention(q, k, v, causal=True, softcap=None, alibi=False), plain, rtol=0, atol=0)


def test_compiled_code_calls_them():
    q, k, v = tensors(grad=False)
    call = torch.compile(lambda q, k, v: 2 * attention(q, k, v, mask="prefix:7", causal=True), backend="eager")
    torch.testing.assert_close(call(q, k, v), 2 * attention(q, k, v, mask="prefix:7", causal=True), rtol=0, atol=0)


def test_a_sink_of_another_type_has_a_gradient_of_it():
    q, k, v = tensors()
    sink = torch.zeros(4, dtype=torch.bfloat16, requires_grad=True)
    attention(q, k, v, learned_sink=sink).sum().backward()
    assert sink.grad.dtype is torch.bfloat16 and sink.grad.abs().sum() > 0


def test_second_derivatives_are_refused():
    q, k, v = tensors()
    (dq,) = torch.autograd.grad(attention(q, k, v, softcap=2.0).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError):
        dq.sum().backward()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"softcap": -1.0}, ts.BadInput, "softcap"),
        ({"learned_sink": torch.zeros(3)}, ts.BadInput, r"learned_sink.*\(4,\)"),
        ({"learned_sink": True}, ts.BadInput, r"learned_sink.*\(H,\)"),
        ({"alibi": torch.zeros(4, requires_grad=True)}, ts.BadInput, "alibi.*detached"),
        ({"soft_cap": 1.0}, TypeError, "softcap"),
        ({"mask": "documents:1,2", "causal": True}, ts.BadInput, "documents"),
        ({"mask": "diagonal:1"}, ts.BadInput, "mask"),
        ({"softcap": 3.0, "kernel": "cpu:flash1"}, ts.BadInput, "softcap"),
        ({"mask": "prefix:3", "page_table": [[0]], "key_lengths": [3]}, ts.BadInput, "mask"),
    ],
)
def test_what_cannot_be_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        attention(*tensors(grad=False), **given)
