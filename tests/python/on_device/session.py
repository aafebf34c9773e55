# SPDX-License-Identifier: Apache-2.0
"""What the Python package does on a device: trains, counts, stands beside others' tools. One step fails for itself.

    PYTHONPATH=SITE python3 tests/python/on_device/session.py RECORD.json [SECONDS] [STEP...]

Writes one record, with what each step saw, and ends with 1 where one failed. Two minutes on an H200.
"""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).parent
STEPS = []
LONGEST_S = 60  # of another process


def step(function):
    STEPS.append(function)
    return function


def require(condition, *said):
    if not condition:
        raise AssertionError(" ".join(map(str, said)))


def close(name, one, other, tolerance):
    difference = (one.float() - other.float()).abs().max().item()
    scale = max(1.0, other.float().abs().max().item())
    require(difference <= tolerance * scale, name, "is off by", difference, "at a scale of", scale)
    return difference / scale


def make_qkv(dtype, batch=2, heads=8, heads_kv=2, seqlen_q=321, seqlen_k=449, head_dim=64, device="cuda"):
    import torch

    torch.manual_seed(1)
    shapes = [(batch, heads, seqlen_q, head_dim)] + 2 * [(batch, heads_kv, seqlen_k, head_dim)]
    return [torch.randn(shape, device=device, dtype=dtype).requires_grad_() for shape in shapes]


def by_definition(q, k, v, causal):
    """In fp64, with masks aligned bottom-right."""
    import torch

    q, k, v = (tensor.double() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(k.shape[2] - q.shape[2])
        scores = scores.masked_fill(~visible, float("-inf"))
    return scores.softmax(-1) @ v


TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


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
def before_torch_has_a_context():
    """The first CUDA work of the process is inside the block."""
    import tilescope as ts

    began = time.monotonic()
    with ts.count(name="first work") as c:
        import torch

        a = torch.zeros(64 * 2**20, dtype=torch.uint8, device="cuda")
    (row,) = c.rows()
    require(row["measured.dram_write_bytes"] >= 0.9 * a.numel(), row)
    facts = ts.info()
    return {"info": facts, "row": row, "elapsed_s": time.monotonic() - began}


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
    close("one head for all", attention(q, k[:, :1].expand_as(k), v, causal=True), attention(q, k[:, :1].repeat(1, 4, 1, 1), v, causal=True), 0)
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
            + [torch.nn.ModuleList([torch.nn.LayerNorm(width), torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)]) for _ in range(2)]
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
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            attention(q, k, v, dropout=0.5)
    except RuntimeError as error:
        require("captured graph" in str(error), error)
    else:
        raise AssertionError("dropout was captured")
    return {"replay": errors}


@step
def inference_keeps_no_lse():
    import torch
    from tilescope.torch import attention

    q, k, v = (tensor.detach() for tensor in make_qkv(torch.float16, batch=1, heads=32, heads_kv=32, seqlen_q=8192, seqlen_k=8192))

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


@step
def host_cost():
    """Microseconds of the host for a call on tensors so small that the device waits."""
    import torch
    from tilescope.torch import scaled_dot_product_attention

    q, k, v = make_qkv(torch.float16, batch=1, heads=2, heads_kv=2, seqlen_q=64, seqlen_k=64)
    gradient = torch.randn_like(q)

    def microseconds(function, calls=300):
        for _ in range(20):
            function()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            function()
        elapsed = time.perf_counter() - began
        torch.cuda.synchronize()
        return 1e6 * elapsed / calls

    own = torch.nn.functional.scaled_dot_product_attention
    found = {}
    for name, attend in (("tilescope", scaled_dot_product_attention), ("torch", own)):
        with torch.no_grad():
            found[f"{name} forward"] = microseconds(lambda: attend(q, k, v, is_causal=True))
        found[f"{name} both"] = microseconds(
            lambda: torch.autograd.grad(attend(q, k, v, is_causal=True), (q, k, v), gradient)
        )
    return found


@step
def a_function_is_counted():
    """As a block and kernel by kernel; a graph that was captured before; what the function returns is its own."""
    import tilescope as ts
    import torch
    from function import make_function

    function = make_function()
    expected = function()
    blocks = []
    for _ in range(3):
        began = time.monotonic()
        with ts.count() as c:
            result = function()
        blocks.append({**c.rows()[0], "elapsed_s": time.monotonic() - began})
        require(torch.equal(result, expected), "the function returned something else")
    with ts.count(by="kernel") as c:
        function()
    kernels = c.rows()
    summed = sum(row["measured.sm_l2_read_bytes"] for row in kernels)
    block = blocks[-1]["measured.sm_l2_read_bytes"]
    require(abs(summed - block) < 0.01 * block, "kernels", summed, "block", block)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    graph.replay()
    with ts.count() as c:
        graph.replay()
    replayed = c.rows()[0]["measured.sm_l2_read_bytes"]
    require(abs(replayed - block) < 0.01 * block, "graph", replayed, "block", block)
    with ts.count(by="kernel") as c:
        graph.replay()
    return {"blocks": blocks, "kernels": kernels, "graph": replayed, "graph by kernel": c.rows()}


def counts_beside(found, where):
    import tilescope as ts
    from function import make_function

    function = make_function()
    function()
    for by in ("block", "kernel"):
        try:
            with ts.count(by=by) as c:
                function()
            found[f"{where}, by {by}"] = sum(row["measured.sm_l2_read_bytes"] for row in c.rows())
        except ts.CountersUnavailable as error:
            found[f"{where}, by {by}"] = f"refused ({error.reason}): {error}"
            require(by == "kernel", error)


@step
def beside_torchs_profiler():
    import torch

    found = {}
    counts_beside(found, "before")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        counts_beside(found, "inside")
    found["kernels that torch.profiler saw"] = sum("flash" in event.key for event in profiler.key_averages())
    counts_beside(found, "after")
    blocks = [value for name, value in found.items() if name.endswith("by block")]
    require(max(blocks) < 1.01 * min(blocks), found)
    return found


def without_memory_of(name):
    """A kernel's name as every tool writes it: up to its template's or its parameters' bracket."""
    return name.replace("void ", "").split("<")[0].split("(")[0].rpartition("::")[2]


def second_calls(rows):
    """Of launches that come twice, the second."""
    return rows[len(rows) // 2 :]


@step
def the_same_by_ncu_and_by_the_command():
    """The function's kernels, counted by ncu, by `tilescope profile -- COMMAND` and in this process."""
    import tilescope as ts
    from function import make_function

    function = make_function()
    function()
    with ts.count(by="kernel") as c:
        function()
    found = {"in the process": [{"kernel": row["kernel"], "sm_l2_read_bytes": row["measured.sm_l2_read_bytes"], "dram_read_bytes": row["measured.dram_read_bytes"], "dram_write_bytes": row["measured.dram_write_bytes"]} for row in c.rows()]}
    folder = Path(tempfile.mkdtemp())
    program = Path(ts.__file__).parent / "bin" / "tilescope"
    if program.exists():
        command = [program, "profile", "--metrics", "traffic", "--quiet", "--json", folder / "profile.json", "--", sys.executable, HERE / "function.py"]
        subprocess.run(command, check=True, timeout=LONGEST_S, capture_output=True)
        rows = [row for row in ts.load(folder / "profile.json").rows() if "distribution" not in row["kernel"]]
        found["by the command"] = [{"kernel": row["kernel"], "sm_l2_read_bytes": row["measured.sm_l2_read_bytes"], "dram_read_bytes": row["measured.dram_read_bytes"]} for row in second_calls(rows)]
    ncu = shutil.which("ncu") or next(map(str, Path("/opt/nvidia/nsight-compute").glob("*/ncu")), None)
    if ncu:
        counters = {"l1tex__m_xbar2l1tex_read_bytes.sum": "sm_l2_read_bytes", "dram__bytes_read.sum": "dram_read_bytes", "dram__bytes_write.sum": "dram_write_bytes"}
        command = [ncu, "--clock-control", "none", "--metrics", ",".join(counters), "--csv", "--print-units", "base", sys.executable, HERE / "function.py"]
        done = subprocess.run(command, timeout=LONGEST_S, capture_output=True, text=True)
        table = [line for line in done.stdout.splitlines() if line.startswith('"')]
        launches = {}
        for row in csv.DictReader(io.StringIO("\n".join(table))):
            launch = launches.setdefault(row["ID"], {"kernel": row["Kernel Name"]})
            launch[counters[row["Metric Name"]]] = int(float(row["Metric Value"].replace(",", "")))
        own_kernels = [launch for launch in launches.values() if "distribution" not in launch["kernel"]]
        found["by ncu"] = second_calls(own_kernels) or done.stdout[-500:] + done.stderr[-500:]
    own = {without_memory_of(row["kernel"]): row["sm_l2_read_bytes"] for row in found["in the process"]}
    for tool in ("by the command", "by ncu"):
        if isinstance(found.get(tool), str):
            continue
        for row in found.get(tool, ()):
            name = without_memory_of(row["kernel"])
            if name in own and own[name] > 2**24:
                require(abs(row["sm_l2_read_bytes"] - own[name]) < 0.01 * own[name], tool, name, row, own[name])
                row["agrees"] = True
        require(any(row.get("agrees") for row in found.get(tool, [{"agrees": True}])), tool, found)
    return found


@step
def measured_and_sampled():
    """Medians and a time; counters against time; a trace of both that is JSON."""
    import tilescope as ts
    import torch
    from tilescope.torch import attention

    q, k, v = (tensor.detach() for tensor in make_qkv(torch.float16, batch=2, heads=16, heads_kv=16, seqlen_q=4096, seqlen_k=4096, head_dim=128))
    problem = ts.Problem.of(q, k, v, causal=True)
    (measured,) = ts.measure(attention, q, k, v, causal=True, launches=3).rows()
    (formula,) = ts.closed_form(problem, "gpu:flash3" if torch.cuda.get_device_capability() == (9, 0) else "gpu:flash2-mma").rows()
    ratio = measured["measured.sm_l2_read_bytes"] / formula["closed_form.sm_l2_read_bytes"]
    require(0.98 < ratio < 1.1, "counted over formula", ratio)

    def work():
        for _ in range(20):
            attention(q, k, v, causal=True)
        torch.cuda.synchronize()

    sampled = ts.timeline(work, interval_us=100)
    folder = Path(tempfile.mkdtemp())
    sampled.trace(folder / "use.json")
    busy = [row for row in sampled.rows() if row["sm_active_share"] > 0.5]
    require(busy and max(row["tensor_share"] for row in busy) > 0.1, len(sampled.rows()), "samples,", len(busy), "busy")
    events = len(json.loads((folder / "use.json").read_text())["traceEvents"])
    return {"counted over formula": ratio, "measured": measured, "busy samples": len(busy), "events": events}


@step
def a_budget_in_pytest():
    import importlib.util

    if importlib.util.find_spec("pytest") is None:
        return {"left out": "there is no pytest"}
    folder = Path(tempfile.mkdtemp())
    (folder / "test_budget.py").write_text(
        """
import pytest, torch
from tilescope.torch import attention

def run():
    q = torch.randn(1, 8, 1024, 64, device="cuda", dtype=torch.float16)
    attention(q, q, q)

@pytest.mark.byte_budget(dram_write_bytes="100 MB")
def test_whole():
    run()

def test_much(byte_budget):
    run()
    with pytest.raises(AssertionError, match="measured.sm_l2_read_bytes is"):
        with byte_budget(sm_l2_read_bytes="1 kB", filter="flash|attention|forward"):
            run()
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "tilescope.pytest_plugin", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONGEST_S)
    require(done.returncode == 0 and "2 passed" in done.stdout, done.stdout[-1500:], done.stderr[-500:])
    return {"said": done.stdout.splitlines()[-1]}


@step
def the_pages_blocks():
    """Every block of the README and of the recipes that needs a device, in its order."""
    import re

    blocks = 0
    for page in ("README.md", "python/RECIPES.md"):
        names = {}
        exec("import tilescope as ts", names)
        for needed, block in re.findall(r"^```python(?: requires=(\w+))?\n(.*?)^```", Path(page).read_text(), re.M | re.S):
            if needed == "device":
                if "@triton.jit" in block:  # which reads the source's file
                    source = Path(tempfile.mkdtemp(), "block.py")
                    source.write_text("import tilescope as ts\nimport torch\n" + block)
                    subprocess.run([sys.executable, source], check=True, timeout=LONGEST_S)
                else:
                    exec(compile(block, page, "exec"), names)
                blocks += 1
    return {"blocks": blocks}


@step
def compiled():
    """torch.compile without graph breaks, with gradients; and in graphs."""
    import torch
    from tilescope.torch import attention

    q, k, v = make_qkv(torch.float16, heads=4, heads_kv=4, seqlen_k=321)
    expected = torch.autograd.grad(attention(q, k, v, causal=True).square().sum(), (q, k, v))
    function = torch.compile(lambda *tensors: attention(*tensors, causal=True).square().sum(), fullgraph=True)
    found = {}
    found["default"] = [close("compiled", *pair, 4e-3) for pair in zip(torch.autograd.grad(function(q, k, v), (q, k, v)), expected)]
    reduced = torch.compile(lambda *tensors: attention(*tensors, causal=True) * 2, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            torch.compiler.cudagraph_mark_step_begin()
            out = reduced(q, k, v).clone()
        found["reduce-overhead"] = close("in graphs", out, 2 * attention(q, k, v, causal=True), 4e-3)
    return found


@step
def two_devices():
    import torch

    if torch.cuda.device_count() < 2:
        return {"left out": "there is one device"}
    import tilescope as ts
    from tilescope.torch import attention

    torch.cuda.set_device(0)
    q, k, v = (tensor.detach() for tensor in make_qkv(torch.float16, device="cuda:1"))
    with ts.count(device="cuda:1") as c:
        out = attention(q, k, v, causal=True)
    require(torch.cuda.current_device() == 0, "the current device is another")
    close("second device", out, by_definition(q, k, v, True), 4e-3)
    return {"row": c.rows()[0]}


def main():
    path, *rest = sys.argv[1:]
    limit_s = float(rest[0]) if rest else 120
    wanted = rest[1:]
    sys.path.insert(0, str(HERE))
    began = time.monotonic()
    record = {"schema": "tilescope.python-session/1", "steps": []}
    for function in STEPS:
        if wanted and function.__name__ not in wanted:
            continue
        name, start = function.__name__.replace("_", " "), time.monotonic()
        entry = {"step": name}
        if start - began > limit_s:
            entry["left out"] = "the time was up"
        else:
            try:
                entry |= {"ok": True, "found": function()}
            except BaseException as error:  # one step's failure is not another's
                entry |= {"ok": False, "error": f"{type(error).__name__}: {error}"[:3000], "where": traceback.format_exc()[-1500:]}
        entry["elapsed_s"] = round(time.monotonic() - start, 2)
        record["steps"].append(entry)
        print(f"{entry.get('ok', 'left out')}\t{entry['elapsed_s']} s\t{name}\t{entry.get('error', '')[:400]}", flush=True)
        part = Path(path + ".part")
        part.write_text(json.dumps(record, indent=1, default=str) + "\n")
        os.replace(part, path)
    failed = [entry["step"] for entry in record["steps"] if entry.get("ok") is not True]
    print(f"{len(record['steps']) - len(failed)} of {len(record['steps'])} steps passed in {time.monotonic() - began:.0f} s")
    sys.stdout.flush()
    os._exit(bool(failed))  # whatever exit handlers of several profilers do to each other


if __name__ == "__main__":
    main()
