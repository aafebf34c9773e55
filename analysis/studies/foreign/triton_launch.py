# SPDX-License-Identifier: Apache-2.0
# What a launch of triton_attention.py's kernels has on an H200, as Triton compiles them without one.
import subprocess
import tempfile
from pathlib import Path


def compiled_launch(name, problem, rows, inner, warps):
    """Registers, spilled bytes and shared memory of a kernel as Triton compiles it for an H200."""
    import triton
    import triton_attention
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import MockTensor, create_function_from_signature

    kernel = getattr(triton_attention, name)
    half = MockTensor(problem["--dtype"])
    single = MockTensor("fp32")
    numbers = (problem["--seqlen"], 0.1, 0.1, problem["--heads"] // problem["--heads-kv"])
    tensors = {"triton_attn_forward": (half, half, half, half, single), "triton_attn_dq": (*[half] * 4, single, single, half),
               "triton_attn_dkdv": (*[half] * 4, single, single, half, half)}[name]
    forward = name == "triton_attn_forward"
    named = dict(D=problem["--head-dim"], **triton_attention.tiles_of(name, rows, inner), CAUSAL=problem["--causal"],
                 num_warps=warps, num_stages=2 if forward else 1,
                 **(dict(SAWTOOTH=False, SIDE_BY_SIDE=False) if forward else {}))
    backend = make_backend(GPUTarget("cuda", 90, 32))
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    numbers = (numbers[0], *numbers[2:]) if forward else numbers
    bound, specialization, options = bind(*tensors, *numbers, **named)
    known, signature, constants, attributes = kernel._pack_args(backend, options, bound, specialization, None)
    built = triton.compile(ASTSource(kernel, signature, constants, attributes), target=backend.target, options=known.__dict__)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(built.asm["cubin"])
        cuobjdump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        usage = subprocess.run([cuobjdump, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    numbers = dict(part.split(":") for part in usage.split() if part.count(":") == 1 and part.split(":")[1].isdigit())
    blocks = problem["--seqlen"] // rows
    heads = problem["--heads-kv" if name == "triton_attn_dkdv" else "--heads"]
    return {"grid": [blocks, problem["--batch"] * heads, 1], "block": [32 * warps, 1, 1], "registers": int(numbers["REG"]),
            "shared_bytes": built.metadata.shared, "local_bytes": int(numbers["STACK"]) + int(numbers["LOCAL"])}


def launch_without_spills(name, problem, rows, inner):
    """With the fewest warps that hold its tiles."""
    for warps in (4, 8, 16):
        try:
            launch = compiled_launch(name, problem, rows, inner, warps)
        except (OSError, ImportError):
            raise
        except Exception as error:  # tiles that Triton does not take
            return None, str(error).splitlines()[0][:80]
        if launch["shared_bytes"] > 227 << 10:
            return None, "takes more shared memory than an SM has"
        if launch["local_bytes"] == 0:
            return launch, ""
    return None, "spills in 16 warps"
