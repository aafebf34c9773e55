# SPDX-License-Identifier: Apache-2.0
"""What the command line measures and judges, as records: the program that came with the package does the work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from .counting import cupti_of_this_python
from .errors import BadInput, CheckFailed, InternalError, MachineLacks, bad_input
from .problem import SCORE_MODS, Problem, problems_of
from .records import Record, load

PROGRAM = Path(__file__).parent / "bin" / "tilescope"
_ERRORS = {1: CheckFailed, 2: BadInput, 3: MachineLacks}


def injection_library() -> str:
    """The library for CUDA_INJECTION64_PATH, through which `profile_command` counts another process."""
    library = Path(__file__).parent / "lib" / "tilescope" / "libtilescope_inject.so"
    if not library.exists():
        raise MachineLacks(f"{library} is missing: CUPTI's headers were not found when TileScope was built")
    return str(library)


def words_of(problem: Problem) -> list[str]:
    """The options of the command line that say what a problem is."""
    numbers = ("batch", "heads", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "dtype", "dropout", "seed")
    words = [word for name in numbers for word in (f"--{name.replace('_', '-')}", str(getattr(problem, name)))]
    words += ["--window", ",".join(map(str, problem.window))] if problem.window != (-1, -1) else []
    words += ["--scale", repr(problem.scale)] if problem.scale is not None else []
    words += ["--key-lengths", ",".join(map(str, problem.key_lengths))] if problem.key_lengths else []
    words += ["--mask", problem.mask] if problem.mask else []
    words += ["--head-dim-v", str(problem.head_dim_v)] if problem.head_dim_v != problem.head_dim else []
    words += ["--page-size", str(problem.page_size)] if problem.page_size else []
    words += ["--kv-dtype", problem.kv_dtype] if problem.kv_dtype != problem.dtype else []
    words += ["--shared-kv"] if problem.shared_kv else []
    for name in SCORE_MODS:
        value = getattr(problem, name)
        flag = [f"--{name.replace('_', '-')}"]
        words += flag if value is True else [*flag, repr(value)] if value else []
    for name in ("descale_q", "descale_k", "descale_v"):
        value = getattr(problem, name)
        words += [f"--{name.replace('_', '-')}", str(value)] if value != 1.0 else []
    words += ["--descale-block", "{}x{}".format(*problem.descale_block)] if problem.descale_block else []
    return words + (["--causal"] if problem.causal else [])


def run_program(command: str, *words: str, after: Sequence[str] = (), passes_on: bool = False) -> Record:
    """The record of ``tilescope COMMAND WORDS --json ... [-- AFTER]``.

    passes_on : the exit code is that of `after`, and no error where a record was written

    Raises what its exit code stands for, with what it said.
    """
    if not PROGRAM.exists():
        raise MachineLacks("this installation has the module without the program")
    with tempfile.TemporaryDirectory(prefix="tilescope-") as folder:
        path = Path(folder) / "record.json"
        told = [str(PROGRAM), command, *words, "--quiet", "--json", str(path), *(["--", *after] if after else [])]
        environment = dict(os.environ)
        if cupti := cupti_of_this_python():
            environment.setdefault("TILESCOPE_CUPTI", cupti)
        done = subprocess.run(
            told, env=environment, check=False, text=True, stderr=None if passes_on else subprocess.PIPE
        )
        if done.returncode == 0 or (passes_on and path.exists()):
            return Record(load(path).text, source=command)
    raise _error_of(done.returncode, done.stderr or f"tilescope {command} ended with {done.returncode}")


def _error_of(code: int, said: str) -> Exception:
    """What an exit code stands for; of bad input, which the program tells as `--option = value: what is allowed`, the parts
    with the argument's name."""
    sentence = said.strip().removeprefix("tilescope: ")
    parts = re.match(r"(?:\w+: )*(?:--)?([\w-]+) = (.*?): (.*)", sentence, re.DOTALL)
    if code == 2 and parts:
        return bad_input(parts[1].replace("-", "_"), parts[2], parts[3])
    return _ERRORS.get(code, InternalError)(sentence)


def profile_command(
    argv: Sequence[str],
    metrics: str = "traffic",
    *,
    replay: str | None = None,
    filter: str = "",
    nvtx: str = "",
    l2: str = "cold",
    time: bool = False,
) -> Record:
    """Runs a command and counts every CUDA kernel of its processes: a row for each launch.

    argv : the command and its arguments, looked for on the PATH
    metrics : ``tilescope.counters()`` lists sets and metrics
    replay : kernel or application, where the metrics take several passes; default: the program's choice
    filter, nvtx : regular expressions on names of kernels, and of NVTX ranges that they are launched in
    l2 : ``cold`` or ``warm``, before each kernel. time : also times, from a run of their own

    ``.json["exit_code"]`` is the command's. What could not be counted stands in ``.json["messages"]``. Raises TypeError
    for a command in one piece, BadInput for one that cannot be started, MachineLacks without a driver.
    """
    if isinstance(argv, str):
        raise TypeError('argv must be a list of words, as in ["python3", "my_script.py"], not a str')
    if not argv or shutil.which(argv[0]) is None:
        raise bad_input("argv", list(argv), "must begin with a program that can be started")
    words = ["--metrics", metrics, "--l2", l2]
    for name, value in {"--replay": replay, "--kernel-filter": filter, "--nvtx": nvtx}.items():
        words += [name, value] if value else []
    return run_program("profile", *words, *(["--time"] if time else []), after=list(argv), passes_on=True)


def _kernel_words(kernels: str | Sequence[str], tile: tuple[int, int] | None, passes: str) -> list[str]:
    names = [kernels] if isinstance(kernels, str) else list(kernels)
    words = [word for name in names for word in ("--kernel", name)]
    return words + ["--pass", passes] + (["--tile", f"{tile[0]}x{tile[1]}"] if tile else [])


def _joined(records: Iterable[Record]) -> Record:
    first, *rest = records
    for record in rest:
        first = first + record
    return first


def verify(
    problems: Problem | Iterable[Problem],
    kernels: str | Sequence[str] = "cpu:flash2",
    *,
    passes: str = "fwd+bwd",
    tile: tuple[int, int] | None = None,
    locate: bool = False,
) -> Record:
    """Holds kernels to the judge, an untiled attention in fp64, on random inputs.

    locate : names the first tile that diverges

    Raises CheckFailed, with the errors found, where one is not within its bound.
    """
    words = _kernel_words(kernels, tile, passes) + (["--locate"] if locate else [])
    return _joined(run_program("verify", *words, *words_of(problem)) for problem in problems_of(problems))


def bench(
    problems: Problem | Iterable[Problem],
    kernels: str | Sequence[str] = "cpu:flash2",
    *,
    passes: str = "fwd",
    tile: tuple[int, int] | None = None,
) -> Record:
    """Times [s] of the kernels, which are judged first: medians, with their noise, as ``time.median_s``.

    Raises UnknownName for a kernel, CheckFailed for one that is wrong, MachineLacks for one that cannot run here.
    """
    words = _kernel_words(kernels, tile, passes)
    return _joined(run_program("bench", *words, *words_of(problem)) for problem in problems_of(problems))


def ceilings() -> Record:
    """Bandwidths and peaks of this machine's device, measured. Raises MachineLacks without one."""
    return run_program("ceilings")


def become_the_program() -> int:
    """Never returns where there is one."""
    if not PROGRAM.exists():
        print("tilescope: this installation has the module without the program", file=sys.stderr)
        return 3
    if cupti := cupti_of_this_python():  # that of the commands which `profile` starts
        os.environ.setdefault("TILESCOPE_CUPTI", cupti)
    os.execv(PROGRAM, ["tilescope", *sys.argv[1:]])
