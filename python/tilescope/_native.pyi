# SPDX-License-Identifier: Apache-2.0
"""What python/native/ binds. Arrays are (address, strides [elements]) of (B, H, N, D) host memory."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

__version__: str

_Array: TypeAlias = tuple[int, tuple[int, ...]]
_Progress: TypeAlias = Callable[[int, int], object] | None

class Problem:
    def __new__(
        cls,
        batch: int,
        heads: int,
        heads_kv: int,
        seqlen_q: int,
        seqlen_k: int,
        head_dim: int,
        dtype: str,
        causal: bool,
        window: tuple[int, int],
        scale: float | None,
        dropout: float,
        seed: int,
        key_lengths: Sequence[int] = (),
        descale_q: str = "1",
        descale_k: str = "1",
        descale_v: str = "1",
        descale_block: tuple[int, int] | None = None,
        mask: str = "",
        score_mods: dict[str, float] = ...,
        head_dim_v: int = 0,
        page_size: int = 0,
        kv_dtype: str = "",
        shared_kv: bool = False,
    ) -> Problem: ...
    def with_seed(self, seed: int) -> Problem: ...
    def describe(self) -> str: ...
    def output_type(self) -> str: ...

class KernelUse:
    kernel: str
    backward: str | None
    def __init__(
        self,
        kernel: str,
        tile: tuple[int, int] | None = None,
        backward: str | None = None,
        order: str | None = None,
        scan: str | None = None,
        diagonal_slices: int | None = None,
    ) -> None: ...

def preset(name: str) -> str: ...
def model_layer(name: str, tp: int, batch: int, seqlen: int, decode: bool) -> str: ...
def attention_forward(
    problem: Problem,
    use: KernelUse,
    q: _Array,
    k: _Array,
    v: _Array,
    out: _Array,
    lse: _Array,
    descales: tuple[_Array, _Array, _Array] = ...,
    numbers: tuple[_Array, _Array] = ...,
    pages: tuple[int, int, int] = ...,
) -> float: ...
def attention_backward(
    problem: Problem,
    use: KernelUse,
    dout: _Array,
    q: _Array,
    k: _Array,
    v: _Array,
    out: _Array,
    lse: _Array,
    dq: _Array,
    dk: _Array,
    dv: _Array,
    numbers: tuple[_Array, _Array] = ...,
    dsink: _Array = ...,
) -> float: ...
def exact(
    problem: Problem,
    q: _Array,
    k: _Array,
    v: _Array,
    dout: _Array,
    out: _Array,
    lse: _Array,
    dq: _Array,
    dk: _Array,
    dv: _Array,
    descales: tuple[_Array, _Array, _Array] = ...,
    numbers: tuple[_Array, _Array] = ...,
    dsink: _Array = ...,
) -> None: ...
def simulate(
    argv: Sequence[str],
    problems: Sequence[Problem],
    kernels: Sequence[KernelUse],
    machine: str,
    passes: str,
    pages: str,
    replay: bool,
    l2_curve: bool,
    predict: bool,
    progress: _Progress,
) -> str: ...
def advise(argv: Sequence[str], problem: Problem, use: KernelUse, machine: str, passes: str) -> str: ...
def simulate_gpus(
    argv: Sequence[str],
    problem: Problem,
    gpus: Sequence[int],
    schedules: Sequence[str],
    ulysses: int,
    machine: str,
    passes: str,
    link_rate: float | None,
    flop_rate: float | None,
) -> tuple[str, list[str]]: ...
def study(argv: Sequence[str], name: str, machine: str, progress: _Progress) -> str: ...
def record_of_csv(source: str, text: str) -> str: ...
def explain(
    argv: Sequence[str],
    source: str,
    record: str,
    problem: Problem,
    passes: str,
    filter: str,
    skip: int,
    count: int,
) -> str: ...
def diff(
    base_source: str, base: str, new_source: str, new: str, budgets: Sequence[str], allow_gone: bool
) -> tuple[str, bool]: ...
def report(records: Sequence[tuple[str, str]]) -> list[tuple[str, str]]: ...
def checked(source: str, record: str) -> str: ...
def catalogue(what: str) -> str: ...
def counters_of(chip: str) -> str: ...
def info() -> str: ...

class BlockCount:
    def __init__(self, metrics: str, device: int, l2: str, by: str, filter: str) -> None: ...
    def open(self) -> None: ...
    def close(self, name: str) -> None: ...
    def record(self, argv: Sequence[str]) -> str: ...
    def library(self) -> str: ...

def measure(
    argv: Sequence[str],
    name: str,
    metrics: str,
    l2: str,
    device: int,
    launches: int,
    time: bool,
    work: Callable[[], object],
) -> str: ...
def timeline(interval_s: float, work: Callable[[], object]) -> str: ...
def choose_kernel(
    problem: Problem, kernel: str, tile: tuple[int, int] | None, order: str, compute_capability: int, backward: bool
) -> KernelUse: ...
def most_row_stride() -> int: ...

def require_pages(problem: Problem, pages: tuple[int, int, int]) -> None: ...

def descale_range() -> tuple[float, float]: ...
def alibi_slope(head: int, heads: int) -> float: ...

class DeviceLaunch:
    def __init__(
        self,
        problem: Problem,
        use: KernelUse,
        backward: bool,
        given: Sequence[tuple[str, tuple[int, ...]]],
        page_table_row: int = ...,
    ) -> None: ...
    def workspaces(self) -> list[tuple[tuple[int, ...], str]]: ...
    def take_tables(self) -> list[bytes]: ...
    def enqueue(self, stream: int, addresses: Sequence[int], counter: int, seed: int) -> None: ...

_Argument: TypeAlias = tuple[str, int, int, bytes]

def kernel_parameters(ptx: str, kernel: str) -> tuple[str, list[tuple[int, str]]]: ...
def emulate(
    argv: Sequence[str],
    ptx: str,
    kernel: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    cluster: tuple[int, int, int],
    arguments: Sequence[_Argument],
    reachable: Sequence[_Argument],
    uninitialised: Sequence[int],
    shared: int,
    max_dynamic_shared: int | None,
    non_portable_cluster: bool,
    registers: int | None,
    sass: str,
    races: bool,
    seed: int,
    most_seconds: float,
) -> tuple[str, int, bytes]: ...
def address_of(memory: bytearray) -> int: ...
def tensor_map(
    address: int,
    type: int,
    extents: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    fill_nan: bool,
) -> bytes: ...
