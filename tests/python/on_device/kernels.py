# SPDX-License-Identifier: Apache-2.0
"""The operators on CUDA tensors: results, strides, autograd, streams, graphs."""

import warnings

from steps import TOLERANCE, by_definition, close, make_qkv, require, run, step


def check_against_definition(q, k, v, causal=True, **options):
    import torch
    from tilescope.torch import attention

    out = attention(q, k, v, causal=causal, **options)
    gradient = torch.randn_like(out)
    ours = torch.autograd.grad(out, (q, k, v), gradient)
    exact = by_definition(q, k, v, causal)
    theirs = torch.autograd.grad(exact, (q, k, v), gradient.double())
    tolerance = TOLERANCE[str(q.dtype).rpartition(".")[2]]
    errors = {"out": close("out", out, exact, tolerance)}
    for name, one, other in zip(("dq", "dk", "dv"), ours, theirs):
        errors[name] = close(name, one, other, 2 * tolerance)
    return errors


@step
def kernels_are_right():
    """Every kernel that the operators choose, forward and backward, held to the definition in fp64."""
    import torch

    found = {}
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for head_dim in (64, 128):
            for kernel in (None, "gpu:flash2-mma") if dtype != torch.float32 else (None,):
                name = f"{dtype} D{head_dim} {kernel or 'chosen'}"
                found[name] = check_against_definition(*make_qkv(dtype, head_dim=head_dim), kernel=kernel)
    found["all keys"] = check_against_definition(*make_qkv(torch.float16), causal=False)
    found["split"] = check_against_definition(*make_qkv(torch.float16), backward="split")
    return found


@step
def strides_of_any_kind():
    import torch
    from tilescope.torch import attention

    q, k, v = (tensor.detach() for tensor in make_qkv(torch.float16, heads=4, heads_kv=4, seqlen_k=321))
    expected = attention(q, k, v, causal=True)
    bnhd = [tensor.transpose(1, 2).contiguous() for tensor in (q, k, v)]
    close("bnhd", attention(*bnhd, causal=True, layout="bnhd").transpose(1, 2), expected, 0)
    packed = torch.stack(bnhd, 2)  # (B, N, 3, H, D), as of one projection
    close("packed", attention(*(packed[:, :, i].transpose(1, 2) for i in range(3)), causal=True), expected, 0)
    odd = torch.empty(*q.shape[:-1], 67, dtype=q.dtype, device="cuda")[..., :64].copy_(q)
    close("rows at odd places", attention(odd, k, v, causal=True), expected, 0)
    close(
        "one head for all",
        attention(q, k[:, :1].expand_as(k), v, causal=True),
        attention(q, k[:, :1].repeat(1, 4, 1, 1), v, causal=True),
        0,
    )
    leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    attention(*leaves, causal=True).sum().backward()
    summed = [leaf.grad for leaf in leaves]
    ones = torch.autograd.grad(attention(*leaves, causal=True), leaves, torch.ones_like(q))
    return {"gradient of a sum": [close("gradient", one, other, 4e-3) for one, other in zip(summed, ones)]}


@step
def a_transformer_learns():
    """Some steps of a small model give the losses that torch's math back end gives."""
    import torch
    from tilescope.torch import scaled_dot_product_attention

    def train(attend, steps=12):
        torch.manual_seed(0)
        width, heads = 256, 4
        layers = torch.nn.ModuleList(
            [torch.nn.Embedding(64, width)]
            + [
                torch.nn.ModuleList(
                    [torch.nn.LayerNorm(width), torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)]
                )
                for _ in range(2)
            ]
            + [torch.nn.Linear(width, 64)]
        ).cuda()
        optimizer = torch.optim.Adam(layers.parameters(), 2e-3)
        text = torch.randint(64, (4, 257), device="cuda")
        losses = []
        for _ in range(steps):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                x = layers[0](text[:, :-1])
                for norm, to_qkv, to_out in layers[1:3]:
                    q, k, v = to_qkv(norm(x)).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
                    x = x + to_out(attend(q, k, v).transpose(1, 2).flatten(-2))
                loss = torch.nn.functional.cross_entropy(layers[3](x).flatten(0, 1).float(), text[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def by_math(q, k, v):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    ours = train(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True))
    theirs = train(by_math)
    require(ours[-1] < 0.8 * ours[0] and abs(ours[-1] - theirs[-1]) < 0.02 * theirs[-1], ours, theirs)
    return {"ours": ours, "math": theirs}


@step
def the_operators_are_torchs():
    """opcheck on CUDA tensors; autocast, vmap, dropout and its seed; second derivatives refused."""
    import torch
    from tilescope.torch import attention

    q, k, v = (tensor.detach() for tensor in make_qkv(torch.float16))
    options = (torch.tensor(3), True, -1, -1, 0.125, 0.0, "", "", 0, 0)
    torch.library.opcheck(torch.ops.tilescope.attention_forward.default, (q, k, v, *options, True))
    out, lse = torch.ops.tilescope.attention_forward(q, k, v, *options, True)
    deterministic = (*options[:7], "split", *options[8:])
    torch.library.opcheck(
        torch.ops.tilescope.attention_backward.default, (out, q, k, v, out, lse, *deterministic),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )  # fmt: skip
    with torch.autocast("cuda", dtype=torch.bfloat16):
        require(attention(q.float(), k.float(), v.float()).dtype is torch.bfloat16, "autocast")
    mapped = torch.vmap(lambda a, b, c: attention(a, b, c, causal=True))(*(t.unsqueeze(1) for t in (q, k, v)))
    close("vmap", mapped.squeeze(1), attention(q, k, v, causal=True), 0)
    torch.manual_seed(3)
    first = attention(q, k, v, dropout=0.5)
    torch.manual_seed(3)
    require(torch.equal(first, attention(q, k, v, dropout=0.5)), "dropout does not follow its seed")
    on_cpu = attention(q.cpu(), k.cpu(), v.cpu(), dropout=0.5, seed=11)
    close("dropout", attention(q, k, v, dropout=0.5, seed=11).cpu(), on_cpu, 4e-3)
    leaf = q.clone().requires_grad_()
    (dq,) = torch.autograd.grad(attention(leaf, k, v).square().sum(), leaf, create_graph=True)
    try:
        dq.sum().backward()
    except RuntimeError as error:
        require("second derivatives" in str(error), error)
    else:
        raise AssertionError("a second derivative was given")
    return {}


@step
def streams_and_graphs():
    """A side stream whose inputs are written late, memory full of NaN, a captured graph replayed on new inputs."""
    import torch
    from tilescope.torch import attention

    q, k, v = (tensor.detach() for tensor in make_qkv(torch.float16, seqlen_q=1024, seqlen_k=1024))
    expected = attention(q, k, v, causal=True)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        late = torch.full_like(q, float("nan"))
        torch.cuda._sleep(200_000_000)  # 0.1 s
        late.copy_(q)
        out = attention(late, k, v, causal=True)
    side.synchronize()
    close("side stream", out, expected, 0)
    for size in (q.numel(), 4 * q.numel(), 64 * q.numel()):
        torch.full((size,), float("nan"), device="cuda")  # and freed
    check_against_definition(*make_qkv(torch.float16))
    static = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    gradient = torch.randn_like(q)

    def work():
        return torch.autograd.grad(attention(*static, causal=True), static, gradient)

    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = work()
    with torch.no_grad():
        for tensor in static:
            tensor.mul_(0.5)
    graph.replay()
    torch.cuda.synchronize()
    errors = [close("replay", one, other, 4e-3) for one, other in zip(captured, work())]
    with warnings.catch_warnings():  # nothing has been captured when the dropout is refused, and torch says so
        warnings.filterwarnings("ignore", "The CUDA Graph is empty")
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                attention(q, k, v, dropout=0.5)
        except RuntimeError as error:
            require("captured graph" in str(error), error)
        else:
            raise AssertionError("dropout was captured")
    return {"replay": errors}


@step
def deterministic_algorithms():
    """Torch's switch chooses an order of the backward pass that repeats its bits; on Hopper it is gpu:flash3's."""
    import torch
    from tilescope.torch import attention, launches

    q, k, v = make_qkv(torch.bfloat16, seqlen_q=2048, seqlen_k=2048)
    gradient = torch.randn_like(q)
    torch.use_deterministic_algorithms(True)
    try:
        first, *others = (torch.autograd.grad(attention(q, k, v, causal=True), (q, k, v), gradient) for _ in range(4))
    finally:
        torch.use_deterministic_algorithms(False)
    for other in others:
        require(all(map(torch.equal, first, other)), "the bits differ")
    options = launches.Options.of(q, causal=True, backward=launches.DETERMINISTIC)
    use = launches.use_of(q.device, q.shape, k.shape, q.dtype, options, True)
    require(use.kernel == "gpu:flash3" or torch.cuda.get_device_capability() != (9, 0), use.kernel)
    return {"kernel": use.kernel}


@step
def torchs_own_attention_by_our_kernels():
    """Registered with torch, its scaled_dot_product_attention computes with them, and without once more as before."""
    import torch
    from tilescope.torch import launches, register_sdpa
    from torch.nn.attention import bias

    own = torch.nn.functional.scaled_dot_product_attention
    calls, forward = [], launches.forward
    launches.forward = lambda *arguments: (calls.append(len(calls)), forward(*arguments))[1]
    q, k, v = make_qkv(torch.float16, seqlen_k=321)
    gradient = torch.randn_like(q)

    def attend(**options):
        out = own(q, k, v, enable_gqa=True, **options)
        return out, *torch.autograd.grad(out, (q, k, v), gradient)

    before = attend(is_causal=True)
    register_sdpa()
    torch.nn.attention.activate_flash_attention_impl("tilescope")
    try:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            pairs = zip(("out", "dq", "dk", "dv"), attend(is_causal=True), before, strict=True)
            errors = {name: close(name, one, other, 8e-3) for name, one, other in pairs}
            q, k, v = make_qkv(torch.float16, heads_kv=8)
            shorter = own(q, k, v, bias.causal_lower_right(q.shape[2], k.shape[2]))
            errors["lower right"] = close("lower right", shorter, by_definition(q, k, v, True), 8e-3)
    finally:
        torch.nn.attention.restore_flash_attention_impl()
    require(len(calls) == 2, "our kernels were called", len(calls), "times")
    own(q, k, v)
    require(len(calls) == 2, "our kernels are called after torch's own were restored")
    launches.forward = forward
    return errors


@step
def inference_keeps_no_lse():
    import torch
    from tilescope.torch import attention

    q, k, v = (
        tensor.detach()
        for tensor in make_qkv(torch.float16, batch=1, heads=32, heads_kv=32, seqlen_q=8192, seqlen_k=8192)
    )

    def held(function):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        result = function()
        return torch.cuda.memory_allocated() - before, result

    inference, out = held(lambda: attention(q, k, v))
    lse_bytes = 4 * q.shape[0] * q.shape[1] * q.shape[2]
    training, _ = held(lambda: attention(q.requires_grad_(), k, v))
    require(inference < out.nbytes + lse_bytes // 2 < training, inference, training, out.nbytes)
    return {"inference_bytes": inference, "training_bytes": training, "out_bytes": out.nbytes}


if __name__ == "__main__":
    run()
