# SPDX-License-Identifier: Apache-2.0
"""Bytes and FLOPs on a machine that need not be here: formulas, the cache simulation, studies, reports."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native
from .errors import bad_input
from .kernel_use import kernel_use
from .problem import Problem, problems_of
from .records import Record, load
from .reports import Diff, Report
from .tables import catalogue

if TYPE_CHECKING:
    import pandas

Progress = Callable[[int, int], object]
Tile = tuple[int, int]


def _argv(function: str, *arguments: object, **options: object) -> list[str]:
    """The command that makes the record again; its words hold no single quotes."""

    def source(value: object) -> str:
        if isinstance(value, (list, tuple)) and not isinstance(value, Problem):
            inside = ", ".join(source(item) for item in value)
            return f"[{inside}]" if isinstance(value, list) else f"({inside},)" if len(value) == 1 else f"({inside})"
        if isinstance(value, Problem):
            return f"ts.{value!r}"
        return json.dumps(value) if isinstance(value, str) else repr(value)

    told = [source(argument) for argument in arguments]
    told += [f"{name}={source(value)}" for name, value in options.items()]
    return ["python3", "-c", f"import tilescope as ts; ts.{function}({', '.join(told)})"]


def _given(**options: object) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _simulate(
    function: str,
    problems: Problem | Iterable[Problem],
    kernel: str | Sequence[str] | None,
    machine: str | os.PathLike[str],
    passes: str,
    tile: Tile | None,
    choices: Mapping[str, Any],
    pages: str,
    replay: bool,
    l2_curve: bool,
    progress: Progress | None,
) -> Record:
    several = problems_of(problems)
    kernels = [kernel] if kernel is None or isinstance(kernel, str) else list(kernel)
    named = [] if kernel is None else [kernels[0] if len(kernels) == 1 else kernels]
    options = _given(passes=passes, tile=tile, **choices, pages=pages if pages != "contiguous" else None)
    if function == "simulate":
        options = {"machine": os.fspath(machine)} | options | _given(
            replay=None if replay else False, l2_curve=l2_curve or None
        )
    argv = _argv(function, several[0] if len(several) == 1 else several, *named, **options)
    return Record(
        _native.simulate(
            argv,
            [problem._handle for problem in several],
            [kernel_use(name, tile, **choices, default="") for name in kernels],
            os.fspath(machine),
            passes,
            pages,
            replay,
            l2_curve,
            function == "simulate",
            progress,
        ),
        source=function,
    )


def closed_form(
    problems: Problem | Iterable[Problem],
    kernel: str | Sequence[str] | None = None,
    *,
    passes: str = "fwd",
    tile: Tile | None = None,
    backward: str | None = None,
    order: str | None = None,
    diagonal_slices: int | None = None,
) -> Record:
    """Bytes [B] and FLOPs of each pass, by formula.

    problems : a Problem, or several
    kernel : a name of ``tilescope.kernels()``, or several; default: as `simulate` takes
    passes : ``fwd``, ``bwd`` or ``fwd+bwd``
    tile : (block_m, block_n); default: each kernel's own
    backward : fused, split, q-outer or single-launch, where the kernel has several orders
    order : row-major, longest-first or head-swizzled: in which CTAs are issued
    diagonal_slices : N: tiles on the mask's edge in N x N parts, of which the hidden ones are left out

    Columns of ``.frame()``: closed_form.sm_l2_read_bytes and ..._write_bytes, which cross the boundary between SMs
    and L2; closed_form.compulsory_read_bytes and ..._write_bytes, which no kernel can do without; flops over
    visible pairs and executed_flops over whole visited tiles.

    Raises UnknownName for a kernel that there is not, BadInput where one refuses the problem or a choice.
    """
    choices = {"backward": backward, "order": order, "diagonal_slices": diagonal_slices}
    return _simulate("closed_form", problems, kernel, "h200", passes, tile, choices, "contiguous", False, False, None)


def simulate(
    problems: Problem | Iterable[Problem],
    kernel: str | Sequence[str] | None = None,
    *,
    machine: str | os.PathLike[str] = "h200",
    passes: str = "fwd",
    tile: Tile | None = None,
    backward: str | None = None,
    order: str | None = None,
    scan: str | None = None,
    diagonal_slices: int | None = None,
    pages: str = "contiguous",
    replay: bool = True,
    l2_curve: bool = False,
    progress: Progress | None = None,
) -> Record:
    """The closed forms, and the bytes [B] of each pass replayed through a machine's L2.

    kernel : a name of ``tilescope.kernels()``, or several; default: what the command line takes, gpu:decode for problems
        like decoding, else the newest of FlashAttention-2 on the A100 and later that takes the problem
    machine : a name of ``tilescope.machines()``, or a machine file that ends in .json
    order, diagonal_slices : as of `closed_form`
    scan : ascending, descending or sawtooth: in which a CTA walks its tiles
    pages : ``contiguous`` or ``random``: where the tensors' pages lie in memory
    replay : False: the closed forms alone
    l2_curve : also DRAM bytes of an LRU cache of every size
    progress : called now and then with (CTAs replayed, CTAs in all)

    Columns of ``.frame()`` beside those of `closed_form`: simulated.sm_l2_read_bytes, ..._write_bytes,
    simulated.dram_read_bytes, ..._write_bytes, simulated.hit_rate (1.0 = all); predicted.time_s of a launch that
    finds the L2 cold, which is no bound, and <NA> where the kernel's structure is not known. Ctrl-C ends it.

    Raises as `closed_form`, UnknownName too for a machine, and OutOfMemory where the replay does not fit.
    """
    choices = {"backward": backward, "order": order, "scan": scan, "diagonal_slices": diagonal_slices}
    return _simulate("simulate", problems, kernel, machine, passes, tile, choices, pages, replay, l2_curve, progress)


def advise(
    problem: Problem,
    machine: str | os.PathLike[str] = "h200",
    kernel: str | None = None,
    *,
    passes: str = "fwd",
) -> Record:
    """Which tile, order of CTAs, scan and splits of a kernel are predicted to be done first.

    machine, kernel : as of `simulate`
    passes : ``fwd``, ``bwd`` or ``fwd+bwd``

    A record of three runs a direction: the best choice, the runner-up (left out where there is one choice), and the
    kernel's own. Ranked by predicted.time_s, or by the time bound where the kernel's structure is not known.

    Raises as `simulate`.
    """
    argv = _argv("advise", problem, os.fspath(machine), **_given(kernel=kernel), passes=passes)
    text = _native.advise(argv, problem._handle, kernel_use(kernel, default=""), os.fspath(machine), passes)
    return Record(text, source="advise")


def simulate_gpus(
    problem: Problem,
    gpus: int | Sequence[int],
    schedule: str | Sequence[str] = "zigzag",
    *,
    passes: str = "fwd",
    machine: str | os.PathLike[str] = "h200",
    ulysses: int | None = None,
    link_rate: float | None = None,
    flop_rate: float | None = None,
) -> Record:
    """What each of several GPUs sends, holds and takes when they share a problem, and what of its time is lost to what.

    gpus : how many; or several numbers
    schedule : a name of ``tilescope.schedules()``, or several; those that cannot split the problem are left out with
        a warning, a single one is refused
    machine : whose rates the GPUs and their links have
    ulysses : of ulysses-ring: GPUs that share heads; default: the most that divide GPUs and heads
    link_rate : of a link in one direction [B/s]; flop_rate : of one GPU with the whole problem [FLOP/s]

    Columns of ``.frame()``: link.sent_bytes and link.received_bytes of the GPU that sends most, link.memory_bytes that
    it holds, predicted.time_s, predicted.efficiency (of so many GPUs without links, 1.0 = all), and predicted.lost_...:
    what is missing of it, as shares that add up to 1 with it. Of the schedule alone: closed_form.steps, ...balance and
    ...lock_step_balance (1.0: all have as much work, in all or in every step), ...least_link_bytes of any schedule.

    Raises BadInput for a number of GPUs, a rate or a single schedule that cannot be, naming the field.
    """
    numbers = [gpus] if isinstance(gpus, int) else list(gpus)
    names = [schedule] if isinstance(schedule, str) else list(schedule)
    if not numbers or not names:
        raise bad_input("gpus" if names else "schedule", "[]", "must be at least one")
    options = _given(
        machine=os.fspath(machine), passes=passes, ulysses=ulysses, link_rate=link_rate, flop_rate=flop_rate
    )
    argv = _argv("simulate_gpus", problem, gpus, schedule, **options)
    text, refusals = _native.simulate_gpus(
        argv, problem._handle, numbers, names, ulysses or 0, os.fspath(machine), passes, link_rate, flop_rate
    )
    for refusal in refusals:
        warnings.warn(f"left out: {refusal}", stacklevel=2)
    return Record(text, source="simulate_gpus")


def study(name: str, machine: str | os.PathLike[str] | None = None, *, progress: Progress | None = None) -> Record:
    """The record of a named sweep, which `report` turns into its figures; ``tilescope.studies()`` lists them.

    machine : in place of the study's own. progress : called with (runs done, runs in all)

    Raises UnknownName for a study or a machine that there is not, BadInput for a machine where it computes on this CPU.
    """
    model = "" if machine is None else os.fspath(machine)
    argv = _argv("study", name, **({"machine": model} if model else {}))
    return Record(_native.study(argv, name, model, progress), source=f"study {name}")


def _kernels(path: str | os.PathLike[str]) -> Record:
    """A record, or the table that Nsight Compute wrote."""
    text = os.fspath(path)
    if text.endswith(".csv"):
        return Record(_native.record_of_csv(text, Path(text).read_text()), source=text)
    return load(path)


def explain(
    record: Record | str | os.PathLike[str],
    problem: Problem,
    *,
    passes: str = "fwd+bwd",
    kernel_filter: str = "",
    skip: int = 0,
    count: int | None = None,
) -> Record:
    """What other people's kernels must move, moved, and why: by the tile programs and block sizes behind them.

    record : what ``tilescope profile --metrics traffic,causes --json FILE -- COMMAND`` wrote, or `count`, or
        ``ncu --csv --page raw --print-units base``
    problem : what the kernels computed
    kernel_filter : a regular expression that the kernels' names contain a match of; skip, count : of the launches

    A row's ``agreement`` is explained, not certain (another number of query heads over the batch, ``other_heads``, fits
    clearly better, or more than 2 % of falsified counts would be explained too, ``by_chance``), reads, writes,
    unexplained or no attention. ``.json`` has the causes and the next steps. Raises BadInput where no kernel is left, or lacks SM<->L2 bytes.
    """
    kernels = record if isinstance(record, Record) else _kernels(record)
    if count is not None and count < 1:
        raise bad_input("count", count, "must be at least 1")
    launches = _given(kernel_filter=kernel_filter or None, skip=skip or None, count=count)
    argv = _argv("explain", kernels._source, problem, passes=passes, **launches)
    text = _native.explain(
        argv,
        kernels._source,
        kernels.text,
        problem._handle,
        passes,
        kernel_filter,
        skip,
        -1 if count is None else count,
    )
    return Record(text, source="explain")


def diff(
    base: Record | str | os.PathLike[str],
    new: Record | str | os.PathLike[str],
    *,
    budgets: Mapping[str, str | float] | None = None,
    allow_gone: bool = False,
) -> Diff:
    """What moved between two records, and whether it moved too far.

    budgets : by metric (``tilescope.metrics()``), what it may grow by: ``{"dram_read_bytes": "5%"}``, or an amount in
        the metric's unit
    allow_gone : lets pass what the new record lacks

    ``.check()`` raises CheckFailed; ``.ok`` tells without.
    """
    before, after = (record if isinstance(record, Record) else load(record) for record in (base, new))
    told = [f"{metric}={amount}" for metric, amount in (budgets or {}).items()]
    text, ok = _native.diff(before._source, before.text, after._source, after.text, told, allow_gone)
    return Diff(text, ok)


def report(*records: Record | str | os.PathLike[str]) -> Report:
    """Tables and figures on records: ``.save(folder)`` writes them, a notebook shows them.

    Raises BadInput for no record, and for one that is damaged or of a kind that no page shows.
    """
    if not records:
        raise bad_input("records", "()", "must be at least one")
    loaded = [record if isinstance(record, Record) else load(record) for record in records]
    return Report(_native.report([(record._source, record.text) for record in loaded]))


def kernels() -> pandas.DataFrame:
    """Every kernel: what it computes, and whether this machine can run it."""
    return catalogue("kernels")


def machines() -> pandas.DataFrame:
    """The machines that come with TileScope; bytes [B], bytes and FLOPs a second."""
    return catalogue("machines")


def metrics() -> pandas.DataFrame:
    """What records hold and budgets are set on: name, unit, the increase that `diff` allows by itself."""
    return catalogue("metrics")


def presets() -> pandas.DataFrame:
    """Problems by name, for `Problem.preset`."""
    return catalogue("presets")


def models() -> pandas.DataFrame:
    """Attention layers of published models, for `Problem.model`, with their sources."""
    return catalogue("models")


def schedules() -> pandas.DataFrame:
    """How several GPUs can share a problem, for `simulate_gpus`."""
    return catalogue("schedules")


def studies() -> pandas.DataFrame:
    """Sweeps by name, for `study`."""
    return catalogue("studies")
