# SPDX-License-Identifier: Apache-2.0
"""Masks and score modifiers through tilescope.torch.attention on CUDA tensors, held to torch's math in fp64."""

from steps import TOLERANCE, close, make_qkv, require, run, step

BANDS = (
    {"causal": True},
    {"window": (90, 20)},
    {"causal": True, "mask": "documents:200,1,120"},
    {"window": (64, 0), "mask": "sink:5"},
    {"causal": True, "mask": "prefix:130"},
)


def visible(rows, causal=False, window=(-1, -1), mask=""):
    """What queries see of as many keys, as `tilescope list masks` has it."""
    import torch

    i, j = torch.arange(rows, device="cuda")[:, None], torch.arange(rows, device="cuda")[None, :]
    left, right = window[0], 0 if causal else window[1]
    late = j <= i + right if right >= 0 else torch.ones(rows, rows, dtype=torch.bool, device="cuda")
    band = late & (j >= i - left) if left >= 0 else late
    kind, _, numbers = mask.partition(":")
    numbers = [int(number) for number in numbers.split(",")] if numbers else []
    if kind == "sink":
        return band | (late & (j < numbers[0]))
    if kind == "prefix":
        return band | (j < numbers[0])
    if kind == "documents":
        document = torch.repeat_interleave(torch.arange(len(numbers)), torch.tensor(numbers)).cuda()
        return band & (document[:, None] == document[None, :])
    return band


def by_definition(q, k, v, sees, softcap=None, alibi=None, learned_sink=None):
    import torch

    q, k, v = (tensor.double() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
    rows = q.shape[2]
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi is not None:
        places = torch.arange(rows, device="cuda")
        scores = scores - alibi.double()[:, None, None] * (places[:, None] - places).abs()
    scores = scores.masked_fill(~sees, float("-inf"))
    if learned_sink is not None:
        sinks = learned_sink.double()[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], -1)
    return scores.softmax(-1)[..., :rows] @ v, scores.logsumexp(-1)


def check(dtype, head_dim, band, mods, layout):
    import torch
    from tilescope.torch import attention

    q, k, v = make_qkv(dtype, seqlen_q=321, seqlen_k=321, head_dim=head_dim)
    mods = {name: value.clone().requires_grad_(name == "learned_sink") if torch.is_tensor(value) else value
            for name, value in mods.items()}  # fmt: skip
    given = [tensor if layout == "bhnd" else tensor.transpose(1, 2) for tensor in (q, k, v)]
    out, lse = attention(*given, layout=layout, return_lse=True, **band, **mods)
    out = out if layout == "bhnd" else out.transpose(1, 2)
    exact, exact_lse = by_definition(q, k, v, visible(321, **band), **mods)
    leaves = [q, k, v] + [value for name, value in mods.items() if name == "learned_sink"]
    gradient = torch.randn_like(out)
    ours = torch.autograd.grad(out, leaves, gradient)
    theirs = torch.autograd.grad(exact, leaves, gradient.double())
    tolerance = TOLERANCE[str(dtype).rpartition(".")[2]]
    errors = {"out": close("out", out, exact, tolerance), "lse": close("lse", lse, exact_lse, 1e-3)}
    for name, one, other in zip(("dq", "dk", "dv", "dsink"), ours, theirs):
        errors[name] = close(name, one, other, 2 * tolerance)
    return errors


def cases():
    import torch

    torch.manual_seed(3)
    slopes, sinks = torch.rand(8, device="cuda"), torch.randn(8, device="cuda")
    alone = {"softcap 2": {"softcap": 2.0}, "softcap 50": {"softcap": 50.0}, "alibi": {"alibi": slopes},
             "sink": {"learned_sink": sinks}}  # fmt: skip
    return alone | {"all": {"softcap": 5.0, "alibi": slopes, "learned_sink": sinks}, "none": {}}


@step
def masks_and_modifiers_are_right():
    import torch

    worst, wrong = {}, []
    for dtype in (torch.float16, torch.bfloat16):
        for head_dim in (64, 128, 256):
            for said, mods in cases().items():
                for count, band in enumerate(BANDS):
                    if not mods and "mask" not in band:
                        continue
                    try:
                        errors = check(dtype, head_dim, band, mods, ("bhnd", "bnhd")[count % 2])
                    except AssertionError as error:
                        wrong.append(f"{dtype} D{head_dim} {said} {band}: {error}")
                        continue
                    of_type = worst.setdefault(f"{dtype} {said}", {})
                    for name, error in errors.items():
                        of_type[name] = max(error, of_type.get(name, 0.0))
    require(not wrong, len(wrong), "wrong:", *wrong)
    return worst


@step
def the_fastest_kernel_is_chosen():
    """On Hopper gpu:flash3 forward, and gpu:flash2-mma backward; elsewhere gpu:flash2-mma."""
    import tilescope as ts
    import torch
    from tilescope import _native

    major, minor = torch.cuda.get_device_capability()
    problem = ts.Problem(seqlen_q=321, heads=8, heads_kv=2, head_dim=64, dtype="bf16", causal=True, softcap=2.0, mask="prefix:9")
    chosen = [_native.choose_kernel(problem._handle, "", None, "", 10 * major + minor, back).kernel for back in (False, True)]
    forward = "gpu:flash3" if (major, minor) == (9, 0) else "gpu:flash2-mma"
    require(chosen == [forward, "gpu:flash2-mma"], chosen)
    return chosen


@step
def graphs_streams_and_the_cpu():
    """A captured graph repeats the bits, so does another stream, and CPU tensors give the same to rounding."""
    import torch
    from tilescope.torch import attention

    q, k, v = (tensor.detach() for tensor in make_qkv(torch.bfloat16, seqlen_q=321, seqlen_k=321))
    call = {"causal": True, "mask": "documents:200,121", "softcap": 50.0, "alibi": True}
    expected = attention(q, k, v, **call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = attention(q, k, v, **call)
    graph.replay()
    close("graph", captured, expected, 0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        other = attention(q, k, v, **call)
    torch.cuda.current_stream().wait_stream(stream)
    close("stream", other, expected, 0)
    return close("cpu", attention(*(tensor.cpu() for tensor in (q, k, v)), **call), expected.cpu(), TOLERANCE["bfloat16"])


if __name__ == "__main__":
    run()
