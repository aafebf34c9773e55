# SPDX-License-Identifier: Apache-2.0
"""The operators on CPU tensors, held to the judge, to torch's own attention and to torch's own checks."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import tilescope as ts
from call_costs import MOST_OVER_KERNEL, costs_of, told
from tilescope.torch import attention, scaled_dot_product_attention

pytestmark = pytest.mark.torch


def tensors(dtype=torch.float32, shape_q=(2, 4, 65, 32), shape_k=(2, 2, 97, 32), grad=True):
    torch.manual_seed(1)
    return [torch.randn(s, dtype=dtype).requires_grad_(grad) for s in (shape_q, shape_k, shape_k)]


def as_arrays(*all_tensors):
    return [tensor.detach().numpy() for tensor in all_tensors]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (20, 3)}, {"dropout": 0.3, "seed": 5}])
def test_gradients_are_the_judges(dtype, options):
    q, k, v = tensors(dtype)
    out = attention(q, k, v, **options)
    dout = torch.randn_like(out)
    out.backward(dout)
    exact = ts.exact_attention(*as_arrays(q, k, v, dout), **options)
    tolerance = 2e-5 if dtype is torch.float32 else 2e-2
    for name, result in {"out": out, "dq": q.grad, "dk": k.grad, "dv": v.grad}.items():
        difference = np.abs(result.detach().numpy() - exact[name]).max()
        assert difference <= tolerance * max(1, np.abs(exact[name]).max()), name


@pytest.mark.parametrize("grad", [False, True])
def test_opcheck_of_forward(grad):
    q, k, v = tensors(grad=grad)
    arguments = (q, k, v, torch.tensor(3), True, -1, -1, 0.2, 0.1, "cpu:flash2", "", 0, 0, True)
    torch.library.opcheck(torch.ops.tilescope.attention_forward.default, arguments)


def test_opcheck_of_backward():
    q, k, v = tensors(grad=False)
    options = (torch.tensor(3), True, -1, -1, 0.2, 0.1, "cpu:flash2", "", 0, 0)
    out, lse = torch.ops.tilescope.attention_forward(q, k, v, *options, True)
    torch.library.opcheck(torch.ops.tilescope.attention_backward.default, (out, q, k, v, out, lse, *options))


def test_gradients_of_any_strides():
    q, k, v = tensors()
    attention(q, k, v).sum().backward()  # hands in strides of 0
    summed = [tensor.grad.clone() for tensor in (q, k, v)]
    for tensor in (q, k, v):
        tensor.grad = None
    attention(q, k, v).backward(torch.ones(q.shape))
    for tensor, expected in zip((q, k, v), summed):
        torch.testing.assert_close(tensor.grad, expected, rtol=0, atol=0)
    swapped = [tensor.detach().transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v)]
    out = attention(*swapped)
    assert out.stride() == swapped[0].stride()
    torch.testing.assert_close(out, attention(q, k, v).detach(), rtol=0, atol=0)
    bnhd = attention(*(tensor.transpose(1, 2) for tensor in swapped), layout="bnhd")
    torch.testing.assert_close(bnhd.transpose(1, 2), out, rtol=0, atol=0)


@pytest.mark.parametrize("short", [True, False])
def test_nothing_goes_back_from_an_output_on_which_nothing_depends(monkeypatch, short):
    from tilescope.torch import operators

    if not short:
        monkeypatch.setattr(operators, "needs_no_dispatcher", lambda *_: False)

    class Ignores(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum()

        @staticmethod
        def backward(ctx, dout):
            return None

    q, k, v = tensors()
    Ignores.apply(attention(q, k, v)).backward()
    assert (q.grad, k.grad, v.grad) == (None, None, None)


def test_rows_too_far_apart_are_copied():
    from tilescope.torch import launches

    far = launches.MOST_ROW_STRIDE // 8 * 8
    assert launches.rows_fit((1, 1, 2, 64), (2 * far, 2 * far, far, 1), 2)
    assert not launches.rows_fit((1, 1, 2, 64), (4 * far, 4 * far, far + 8, 1), 2)


def test_inference_keeps_no_lse(monkeypatch):
    kept = []
    from tilescope import _native

    forward = _native.attention_forward
    monkeypatch.setattr(_native, "attention_forward", lambda *a: (kept.append(a[-1][0] != 0), forward(*a)))
    q, k, v = tensors()
    with torch.no_grad():
        attention(q, k, v)
    attention(q, k, v)
    assert kept == [False, True]


# Of long rows: beside a kernel that has had the caches to itself a call takes up to a millisecond, and AMX six for 2048 in bf16.
@pytest.mark.parametrize("dtype, length", [(torch.float32, 4096), (torch.bfloat16, 8192)])
def test_a_call_costs_little_over_its_kernel(monkeypatch, capsys, dtype, length):
    q, k, v = tensors(dtype, (1, 8, length, 64), (1, 8, length, 64), grad=False)
    kernel, call, beside = costs_of(monkeypatch, lambda: attention(q, k, v, causal=True))
    with capsys.disabled():
        print(told(f"\ntilescope.torch.attention, {dtype}", kernel, call, beside))
    assert beside <= MOST_OVER_KERNEL * kernel


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_breaks(dynamic):
    compiled = torch.compile(
        lambda q, k, v: attention(q, k, v, causal=True).square().sum(),
        fullgraph=True,
        dynamic=dynamic,
        backend="aot_eager",
    )
    for length in (33, 65):
        q, k, v = tensors(shape_q=(1, 2, length, 32), shape_k=(1, 2, length, 32))
        loss = compiled(q, k, v)
        loss.backward()
        again = [tensor.detach().clone().requires_grad_() for tensor in (q, k, v)]
        expected = attention(*again, causal=True).square().sum()
        expected.backward()
        torch.testing.assert_close(loss, expected)
        for tensor, other in zip((q, k, v), again):
            torch.testing.assert_close(tensor.grad, other.grad)


def test_a_compiled_call_makes_no_tensor_of_its_own():
    """One in host memory would stand between CUDA graphs and what they may hold."""
    seen = []

    def backend(module, _):
        seen.extend(node.target for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    compiled = torch.compile(lambda q, k, v: attention(q, k, v, causal=True), fullgraph=True, backend=backend)
    compiled(*tensors(grad=False))
    made = [target for target in seen if target in (torch.zeros, torch.tensor, torch.empty, torch.randint)]
    assert torch.ops.tilescope.attention_forward in seen and not made, seen


@pytest.mark.parametrize("options", [{}, {"dropout": 0.3, "seed": 2**63 - 1}, {"layout": "bnhd"}])
def test_the_short_way_gives_what_the_operators_give(monkeypatch, options):
    from tilescope.torch import operators

    found = []
    for short in (True, False):
        if not short:
            monkeypatch.setattr(operators, "needs_no_dispatcher", lambda *_: False)
        q, k, v = tensors(shape_q=(2, 4, 32, 32), shape_k=(2, 4, 32, 32))
        out, lse = attention(q, k, v, causal=True, return_lse=True, **options)
        nodes = {type(node).__name__ for node in (out.grad_fn, out.grad_fn.next_functions[0][0])}
        assert ("EagerBackward" in nodes) == short
        assert not lse.requires_grad
        found.append([out, lse, *torch.autograd.grad(out.square().sum(), (q, k, v))])
        with torch.no_grad():
            assert torch.equal(attention(q, k, v, causal=True, **options), out)
    for one, other in zip(*found):
        assert torch.equal(one, other) and one.stride() == other.stride()


def test_deterministic_algorithms_take_an_order_that_repeats():
    q, k, v = tensors()
    split = torch.autograd.grad(attention(q, k, v, backward="split").sum(), (q, k, v))
    torch.use_deterministic_algorithms(True)
    try:
        chosen = torch.autograd.grad(attention(q, k, v).sum(), (q, k, v))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, split, chosen))


def test_autocast_casts_and_gradients_come_back_in_fp32():
    q, k, v = tensors()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attention(q, k, v)
    assert out.dtype is torch.bfloat16
    out.float().sum().backward()
    assert q.grad.dtype is torch.float32


def test_vmap_is_a_larger_batch():
    q, k, v = (tensor.detach().unflatten(0, (2, 1)) for tensor in tensors())
    mapped = torch.vmap(lambda a, b: attention(a, b, v[0], causal=True))(q, k)
    for i in range(2):
        torch.testing.assert_close(mapped[i], attention(q[i], k[i], v[0], causal=True), rtol=0, atol=0)


def test_second_derivatives_are_refused_not_wrong():
    q, k, v = tensors()
    (dq,) = torch.autograd.grad(attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        dq.sum().backward()


def test_dropout_follows_the_generator_and_checkpointing():
    q, k, v = tensors()
    torch.manual_seed(3)
    first = attention(q, k, v, dropout=0.5)
    second = attention(q, k, v, dropout=0.5)
    torch.manual_seed(3)
    assert torch.equal(first, attention(q, k, v, dropout=0.5)) and not torch.equal(first, second)
    torch.manual_seed(3)
    checkpointed = torch.utils.checkpoint.checkpoint(lambda: attention(q, k, v, dropout=0.5), use_reentrant=False)
    gradients = torch.autograd.grad(checkpointed.sum(), (q, k, v))
    for one, other in zip(gradients, torch.autograd.grad(first.sum(), (q, k, v))):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("lengths", [(48, 48), (64, 40), (40, 64)])
@pytest.mark.parametrize("mask", ["none", "is_causal", "lower_right", "upper_left"])
def test_drop_in_for_torchs_own(lengths, mask):
    from torch.nn.attention import bias

    (queries, keys) = lengths
    q, k, v = tensors(shape_q=(2, 3, queries, 32), shape_k=(2, 3, keys, 32))
    options = {"is_causal": mask == "is_causal"}
    if mask in ("lower_right", "upper_left"):
        options["attn_mask"] = getattr(bias, f"causal_{mask}")(queries, keys)
    ours = scaled_dot_product_attention(q, k, v, **options)
    again = [tensor.detach().clone().requires_grad_() for tensor in (q, k, v)]
    theirs = torch.nn.functional.scaled_dot_product_attention(*again, **options)
    if mask == "lower_right" and queries > keys:  # torch has NaN there in some versions
        ours, theirs = ours[:, :, queries - keys :], theirs[:, :, queries - keys :]
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    if mask == "lower_right" and queries > keys:
        return
    ours.sum().backward()
    theirs.sum().backward()
    for tensor, other in zip((q, k, v), again):
        torch.testing.assert_close(tensor.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_drop_in_takes_three_and_five_dimensions_and_grouped_heads():
    own = torch.nn.functional.scaled_dot_product_attention
    q = torch.randn(3, 2, 4, 17, 8)
    torch.testing.assert_close(scaled_dot_product_attention(q, q, q), own(q, q, q), rtol=1e-5, atol=1e-5)
    q = torch.randn(3, 17, 8)
    torch.testing.assert_close(scaled_dot_product_attention(q, q, q), own(q, q, q), rtol=1e-5, atol=1e-5)
    q, k, v = tensors(grad=False)
    grouped = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(grouped, own(q, k, v, enable_gqa=True), rtol=1e-5, atol=1e-5)


def test_refusals_name_the_argument():
    q, k, v = tensors(grad=False)
    for call, field in (
        (lambda: attention(q, k.half(), v), "k"),
        (lambda: attention(q.double(), k.double(), v.double()), "dtype"),
        (lambda: attention(q, k, v[:, :, :16]), "v"),
        (lambda: attention(q[:, :3], k, v), "heads_kv"),
        (lambda: attention(q, k, v.to("meta")), "v"),
        (lambda: attention(q, k, v.to_sparse()), "v"),
        (lambda: attention(q, k, v, kernel="cpu:flash3"), "kernel"),
        (lambda: scaled_dot_product_attention(q, k, v), "enable_gqa"),
        (lambda: scaled_dot_product_attention(q, q, q, torch.zeros(65, 65)), "attn_mask"),
    ):
        with pytest.raises(ts.BadInput) as caught:
            call()
        assert caught.value.field == field, str(caught.value)


def test_arrays_module_hands_tensors_over():
    q, k, v = tensors()
    out = ts.attention(q, k, v)
    assert isinstance(out, torch.Tensor) and out.requires_grad


def test_a_small_transformer_learns_as_with_torchs_own():
    def train(attend, steps=8):
        torch.manual_seed(0)
        embed, to_qkv, to_out = torch.nn.Embedding(16, 32), torch.nn.Linear(32, 96), torch.nn.Linear(32, 16)
        norm = torch.nn.LayerNorm(32)
        parameters = [p for layer in (embed, to_qkv, to_out, norm) for p in layer.parameters()]
        optimizer = torch.optim.Adam(parameters, 1e-2)
        text = torch.randint(16, (4, 33))
        losses = []
        for _ in range(steps):
            x = norm(embed(text[:, :-1]))
            q, k, v = to_qkv(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
            y = x + attend(q, k, v).transpose(1, 2).flatten(-2)
            loss = torch.nn.functional.cross_entropy(to_out(y).flatten(0, 1), text[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    ours = train(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True))
    theirs = train(lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
    assert ours[-1] < 0.8 * ours[0] and math.isclose(ours[-1], theirs[-1], rel_tol=1e-3)


@pytest.mark.parametrize("first", ["torch", "tilescope"])
def test_either_may_be_imported_first_and_a_fork_computes(python, first):
    second = "tilescope" if first == "torch" else "torch"
    snippet = f"""
import {first}
import {second}
import os, torch, tilescope as ts
torch.set_num_threads(2)
q = torch.randn(1, 2, 128, 32)
expected = ts.attention(q, q, q)
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(ts.attention(q, q, q), expected) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert python(snippet).split() == ["0"]


def test_the_end_of_a_process_is_quiet():
    import subprocess
    import sys

    snippet = "import torch\nfrom tilescope.torch import attention\nattention(*torch.randn(3, 1, 2, 64, 32))"
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
