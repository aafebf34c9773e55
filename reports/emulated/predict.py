#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Emulates the drawn kernels, and compiles what `measure.py` launches: predict.py SEED FOLDER. Needs Triton and nvcc, but no
GPU. Leaves FOLDER/predicted.json.gz and cubins.tar.xz. With a third word, a program of `cmake --preset emulator`, emulates
our rungs in their place and leaves FOLDER/predicted-rungs.json.gz. predict.py again FOLDER PROGRAM emulates a draw that was
measured once more and leaves FOLDER/again.json.gz."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import kernels
import numpy as np
import tilescope as ts

CORPUS = kernels.ROOT / "tests" / "emulator" / "corpus"
import compiling
from kernels import cases


def compiled(name: str, case_name: str, case: cases.Case) -> dict[str, Any]:
    """PTX whose kernel bears the name of the launch, and how it is launched."""
    if (source := CORPUS / "cuda" / f"{name.removesuffix('_large')}.cu").exists():
        made = {"shared": case.shared, "arguments": list(case.arguments), "scratch": [], "block": case.block}
        made |= compiling.of_cuda(source, "sm_90a")
    else:
        made = compiling.of_triton(case.kernel or case_name, case, 90, ptx_version=90)
        made["block"] = (32 * made["warps"],)
    made["ptx"], found = re.subn(r"(\.entry\s+)\w+\(", rf"\1{name}(", made["ptx"])
    assert found == 1, f"{name}: {found} kernels"
    return made


def assemble(ptx: str, name: str, folder: Path) -> tuple[int, int, str]:
    """Writes a cubin. Registers of a thread, bytes that ptxas spills, and what it made."""
    text = folder / f"{name}.ptx"
    text.write_text(ptx)
    words = [compiling.of_toolkit("ptxas"), "-v", "-arch=sm_90a", str(text), "-o", str(folder / f"{name}.cubin")]
    told = subprocess.run(words, check=True, capture_output=True, text=True).stderr
    text.unlink()
    spills = sum(int(each) for each in re.findall(r"(\d+) bytes spill", told))
    disassembler = [compiling.of_toolkit("cuobjdump"), "-sass", str(folder / f"{name}.cubin")]
    sass = subprocess.run(disassembler, check=True, capture_output=True, text=True).stdout
    return int(re.search(r"Used (\d+) registers", told)[1]), spills, sass


def in_order(case: cases.Case, made: dict[str, Any]) -> list[Any]:
    scratch = [np.zeros(size * int(np.prod(case.grid)), np.uint8) if size else None for size in made["scratch"]]
    return [case.arguments[each] for each in made["arguments"]] + scratch


def predict(name: str, case_name: str, sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    case = kernels.case_of(case_name, sizes)
    made = compiled(name, case_name, case)
    registers, spills, sass = assemble(made["ptx"], name, folder)
    launch = {"grid": case.grid, "block": made["block"], "shared": made["shared"], "registers": registers}
    given = {"max_dynamic_shared": made["shared"], "sass": sass, "args": in_order(case, made)}
    result = ts.emulate(made["ptx"], **launch, **given).check()
    wrong = cases.wrong_results(case)
    assert not wrong, f"{name}: {wrong}"
    told = result.record.json["kernels"][0]["emulated"]
    print(f"{name}: {sizes}, {result.instructions / result.seconds / 1e6:.1f} M warp instructions/s", flush=True)
    return {
        "name": name, "case": case_name, "sizes": sizes, "arguments": made["arguments"], "scratch": made["scratch"],
        "spilled_bytes_of_a_thread": spills, "launch": launch, "measured": result.metrics,
        "least_read_bytes": told["least_read_bytes"], "least_write_bytes": told["least_write_bytes"],
        "must_read_bytes": told["must_read_bytes"], "must_write_bytes": told["must_write_bytes"],
        "instructions": result.instructions, "seconds": result.seconds,
    }  # fmt: skip


def predict_rung(program: str, kernel: str, words: list[str]) -> dict[str, Any]:
    """Its launches in their order."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record.json")
        run = [program, *words, "--out", folder]
        subprocess.run([program, "emulate", "--quiet", "--json", str(record), "--", *run], check=True)
        told = json.loads(record.read_text())["kernels"]
    bounds = ("least_read_bytes", "least_write_bytes")
    launches = [
        {"name": kernel["name"], "grid": kernel["launch"]["grid"], "measured": kernel["measured"]}
        | {bound: kernel["emulated"][bound] for bound in bounds}
        for kernel in told
    ]
    print(f"{kernel}: {' '.join(words)}, {len(launches)} launches", flush=True)
    return {"kernel": kernel, "words": words, "launches": launches}


def write(path: Path, prediction: dict[str, Any]) -> None:
    prediction["when"] = time.strftime("%FT%TZ", time.gmtime())
    text = json.dumps(prediction, indent=1) + "\n"
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def again(folder: Path, program: str) -> None:
    """What the device as it is now says of a draw that was measured."""
    drawn, rungs = (
        json.loads(gzip.decompress((folder / f"predicted{part}.json.gz").read_bytes())) for part in ("", "-rungs")
    )
    kept = ("name", "measured", "least_read_bytes", "least_write_bytes", "must_read_bytes")
    with tempfile.TemporaryDirectory() as cubins:
        told = [predict(each["name"], each["case"], each["sizes"], Path(cubins)) for each in drawn["kernels"]]
    kernels_now = [{name: each[name] for name in kept} for each in told]
    rungs_now = [predict_rung(program, each["kernel"], each["words"]) for each in rungs["rungs"]]
    write(folder / "again.json.gz", {"kernels": kernels_now, "rungs": rungs_now})


if __name__ == "__main__":
    kept, program = Path(sys.argv[2]), "".join(sys.argv[3:])
    kept.mkdir(parents=True, exist_ok=True)
    if sys.argv[1] == "again":
        sys.exit(again(kept, program))
    seed = int(sys.argv[1])
    prediction: dict[str, Any] = {"seed": seed}
    if program:
        prediction["rungs"] = [predict_rung(program, *rung) for rung in kernels.rungs(seed)]
    else:
        with tempfile.TemporaryDirectory() as folder:
            prediction["kernels"] = [predict(*launch, Path(folder)) for launch in kernels.drawn(seed)]
            with tarfile.open(kept / "cubins.tar.xz", "w:xz") as archive:
                for cubin in sorted(Path(folder).glob("*.cubin")):
                    archive.add(cubin, cubin.name)
    write(kept / f"predicted{'-rungs' if program else ''}.json.gz", prediction)
