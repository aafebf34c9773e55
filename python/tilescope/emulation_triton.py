# SPDX-License-Identifier: Apache-2.0
"""Triton kernels on the emulated device: compiled as Triton's own launcher has them compiled, without a driver."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from . import _native
from .emulation import Emulation, _extent, _run
from .emulation_memory import DeviceMemory, _Argument, _scalar, tensor
from .errors import MissingPackage, bad_input

_WIDTHS = {"1": 1, "8": 1, "16": 2, "32": 4, "64": 8}
# A kernel's numbers of element types are not the driver's (PTX ISA, tensormap.replace; cuTensorMapEncodeTiled).
_DRIVERS_TYPE = {8: 10, 9: 8, 10: 9}


def _triton() -> Any:
    try:
        import triton
        import triton.backends.compiler
        import triton.compiler
        import triton.runtime.jit
    except ImportError:
        raise MissingPackage("triton is missing: pip install triton; tilescope.emulate takes PTX without it") from None
    return triton


def _as_triton_sees(value: Any) -> Any:
    """Arrays as tensors; numpy's scalars as Python's numbers."""
    if hasattr(value, "__array_interface__") and not hasattr(value, "data_ptr"):
        return tensor(value) if getattr(value, "ndim", 0) else value.item()
    return value


def _compile(
    fn: Any, target: int, arguments: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Any, Any, dict[str, Any]]:
    """The compiled kernel, its signature without constants, and the arguments by name."""
    triton = _triton()
    if not isinstance(fn, triton.runtime.jit.JITFunction):
        raise bad_input("fn", type(fn).__name__, "must be a function with @triton.jit; of an autotuned one, its .fn")
    backend = triton.compiler.make_backend(triton.backends.compiler.GPUTarget("cuda", target, 32))
    bind = triton.runtime.jit.create_function_from_signature(fn.signature, fn.params, backend)
    try:
        bound, specialization, options = bind(*arguments, **named)
        known, signature, constants, attributes = fn._pack_args(backend, options, bound, specialization, None)
    except (TypeError, KeyError) as error:
        raise bad_input("args", f"those of {fn.__name__}", f"must fit {fn.signature}: {error}") from None
    source_of: Any = triton.compiler.ASTSource
    if getattr(fn, "is_gluon", lambda: False)():
        from triton.experimental.gluon._runtime import GluonASTSource

        source_of = GluonASTSource
    source = source_of(fn, signature, constants, attributes)
    compiled = triton.compile(source, target=backend.target, options=known.__dict__)
    return compiled, {name: kind for name, kind in signature.items() if kind != "constexpr"}, bound


def _quietly_compile(*arguments: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Without what Triton warns of its own options."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _compile(*arguments)


def _registers(cubin: bytes) -> int | None:
    """Of a thread, as ptxas noted them in the section .nv.info of a cubin with one kernel."""
    register_count, with_bytes = 0x2F, 4  # an attribute, and the form of entries that bytes follow
    (sections,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<3H", cubin, 58)
    table = [struct.unpack_from("<2I4Q", cubin, sections + size * index) for index in range(count)]
    for name, _, _, _, at, length in table:
        if cubin.startswith(b".nv.info\0", table[names][4] + name):
            end = at + length
            while at < end:
                form, attribute, value = struct.unpack_from("<2BH", cubin, at)
                if attribute == register_count:
                    return int(struct.unpack_from("<I", cubin, at + 8)[0])
                at += 4 + (value if form == with_bytes else 0)
    return None


def _sass(cubin: bytes) -> str:
    """As Triton's own cuobjdump prints it; empty where there is none."""
    try:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            words = [_triton().knobs.nvidia.cuobjdump.path, "-sass", file.name]
            return subprocess.run(words, check=True, capture_output=True, text=True).stdout
    except (OSError, RuntimeError, subprocess.CalledProcessError):
        return ""


def _number(name: str, kind: str, value: Any) -> _Argument:
    digits = kind.lstrip("iufpb")
    if digits not in _WIDTHS:
        raise bad_input(name, kind, "must be a number of 1 to 64 bits, an array or a tensor descriptor")
    return name, 0, 0, _scalar(name, float(value) if kind[0] in "fb" else int(value), _WIDTHS[digits])


def _descriptor(
    name: str, given: Any, map_facts: Mapping[str, Any] | None, memory: DeviceMemory
) -> Iterator[_Argument]:
    """A tensor map and what kernels ask of it, or its parts where the chip has no maps."""
    numbers = [*((size, "i32") for size in given.shape), *((step, "i64") for step in given.strides)]
    if map_facts is None:
        yield memory.place(name, given.base) or (name, 0, 0, b"")
        parts = [*((size, "i64") for size in (*given.shape, *given.strides)), (given.padding == "nan", "i1")]
        numbers = [*parts, (getattr(given, "round_f32_to_tf32", False), "i1"), *numbers]
    else:
        kind = map_facts["elem_type"]
        size = map_facts["elem_size"]
        steps = [step * size for step in given.strides[-2::-1]]
        _, address, _, _ = memory.place(name, given.base) or (name, 0, 0, b"")
        yield name, 0, 0, _native.tensor_map(
            address, _DRIVERS_TYPE.get(kind, kind), given.shape[::-1], steps,
            map_facts["block_size"][::-1], map_facts["swizzle"], given.padding == "nan",
        )  # fmt: skip
    for value, of_kind in numbers:
        yield _number(name, of_kind, value)


def _arguments(
    signature: Mapping[str, str], bound: Mapping[str, Any], metadata: Any, memory: DeviceMemory
) -> Iterator[_Argument]:
    maps = iter(getattr(metadata, "tensordesc_meta", None) or ())
    for name, kind in signature.items():
        if kind.startswith("tensordesc"):
            yield from _descriptor(name, bound[name], next(maps, None), memory)
        elif kind.startswith("*"):
            yield memory.place(name, bound[name]) or (name, 0, 0, bytes(8))
        else:
            yield _number(name, kind, bound[name])


def _advice(
    fn: Any, target: int, given: list[Any], named: dict[str, Any], ptx: str, signature: Mapping[str, str], bound: Any
) -> Iterator[str]:
    """Numbers that 16 does not divide have Triton guard, and move, element by element: those that cost accesses."""

    def accesses(text: str) -> int:
        return len(re.findall(r"\b(?:ld|st)\.(?:volatile\.)?global|\bcp\.async\.c[ag]", text))

    for place, name in enumerate(fn.arg_names):
        value = bound.get(name)
        if not signature.get(name, "").startswith("i") or not isinstance(value, int) or value % 16 == 0:
            continue
        padded = -(-value // 16) * 16
        positional = [padded if at == place else argument for at, argument in enumerate(given)]
        other, _, _ = _quietly_compile(fn, target, positional, {**named, name: padded} if name in named else named)
        if (fewer := accesses(other.asm["ptx"])) < (now := accesses(ptx)):
            yield (
                f"advice: {name} = {value} is no multiple of 16, so that Triton guards elements one by one: "
                f"{now} accesses to global memory stand in the code, {fewer} for {padded}"
            )


def emulate_triton(
    fn: Any,
    grid: int | Sequence[int] | Callable[[dict[str, Any]], Sequence[int]],
    *args: Any,
    target: int = 90,
    races: bool = False,
    uninitialised: Sequence[Any] = (),
    emulated_seed: int = 1,
    most_seconds: float = 600,
    **constexprs: Any,
) -> Emulation:
    """Compiles a Triton kernel for a chip and runs it on the CPU: no GPU, no driver, no torch.

    fn, grid, args, constexprs : as of ``fn[grid](*args, **constexprs)``, num_warps and num_stages among them. Arrays are
        numpy's, `tensor` where numpy lacks the type, torch's on the CPU, or Triton's TensorDescriptor of `tensor`
    target : compute capability, 80 or 90. races, uninitialised, emulated_seed, most_seconds : as of `emulate`

    >>> tilescope.emulate_triton(softmax, (16,), x, out, 1000, 1000, BLOCK=1024).sectors_per_request()   # doctest: +SKIP

    Raises MissingPackage without Triton; else as `emulate`, and what Triton raises.
    """
    if target not in (80, 86, 89, 90):
        raise bad_input("target", str(target), "must be 80, 86, 89 or 90")
    given = [_as_triton_sees(arg) for arg in args]
    named = {name: _as_triton_sees(value) for name, value in constexprs.items()}
    compiled, signature, bound = _quietly_compile(fn, target, given, named)
    metadata = compiled.metadata
    x, y, z = _extent("grid", tuple(grid(bound)) if callable(grid) else grid)
    clusters = (metadata.num_ctas, 1, 1)
    ctas = x * y * z * metadata.num_ctas
    memory = DeviceMemory()
    memory.say_uninitialised(uninitialised)
    arguments = [
        *_arguments(signature, bound, metadata, memory),
        memory.zeros("global scratch", metadata.global_scratch_size * ctas),
        memory.zeros("profile scratch", metadata.profile_scratch_size * ctas),
    ]
    reachable = [
        buffer
        for name, kind in signature.items()
        if kind.startswith("tensordesc") and (buffer := memory.place(name, bound[name].base))
    ]
    places = (x * metadata.num_ctas, y, z), (32 * metadata.num_warps, 1, 1), clusters
    text = compiled.asm["ptx"]
    result = _run(
        text,
        metadata.name,
        places,
        memory,
        arguments,
        reachable,
        (metadata.shared, metadata.shared, metadata.num_ctas > 8),  # as Triton's launcher asks
        _registers(compiled.asm["cubin"]),
        _sass(compiled.asm["cubin"]) if text.count("st.global") > 1 else "",
        races,
        emulated_seed,
        most_seconds,
    )
    if any(finding.kind == "uncoalesced" for finding in result.findings):
        result.notes += _advice(fn, target, given, named, text, signature, bound)
    return result
