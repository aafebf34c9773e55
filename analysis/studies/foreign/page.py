# SPDX-License-Identifier: Apache-2.0
# reports/foreign/libraries.md: what `explain` says of eight libraries' kernels, and whether advice came true.
#   page.py keep FOLDER    archive what collect_libraries.sh wrote into FOLDER, and the advice measured by advice.py
#   page.py [--check]      make the page from the archives, or say whether it is the one that they make
# TILESCOPE names the program.
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from advice import record_in, told

TILESCOPE = os.environ.get("TILESCOPE", "./tilescope")
FOREIGN = Path(__file__).parents[3] / "reports/foreign"
LIBRARIES, ADVICE, PAGE = FOREIGN / "libraries-h200.json.gz", FOREIGN / "advice-20261126.json.gz", FOREIGN / "libraries.md"
PROBLEM = "--batch 2 --heads 16 --seqlen 4096 --head-dim 128 --dtype bf16 --causal".split()
NAMES = {"flash_attention": "PyTorch's FlashAttention-2", "cudnn_attention": "cuDNN, by PyTorch",
         "efficient_attention": "PyTorch's memory-efficient attention (CUTLASS)", "flex_attention": "PyTorch's FlexAttention (Inductor)",
         "math": "PyTorch's matrix products (cuBLAS)", "flash_attention_4": "FlashAttention-4 (CuTe DSL)",
         "flash_linear_attention": "flash-linear-attention's softmax attention (Triton)", "triton": "a plain Triton kernel",
         "jax": "JAX's Pallas (Triton), and XLA's own products", "ours-flash2-mma": "gpu:flash2-mma"}
BESIDE = "cudnn|input_|loop_|^fusion_"  # what JAX launches besides: cuDNN's kernels again, random numbers, comparisons
# Of a kernel that is no attention, what it must move is said: the scores of all heads in fp32, from Q and K once.
SAID = {"math": ("Its first product, whose reads and writes are said by `--reads` and `--writes`: Q and K once, and the scores of all heads, in fp32.",
                 "--kernel-filter", "gemm_f32f32_f32f32_f32_tn", "--count", 1,
                 "--reads", 2 * 2 * 16 * 4096 * 128 * 4, "--writes", 2 * 16 * 4096 * 4096 * 4)}
CARDS = 1  # of a library, that of the kernel that moves most
TOLERANCE = 0.1


def write(path, content):
    path.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 9, mtime=0))


def explained(record, *more):
    """What `explain` prints of a record, and the kernels of what it writes as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "record.json").write_text(json.dumps(record))
        words = [TILESCOPE, "explain", "record.json", *([] if "runs" in record else PROBLEM), *more, "--json", "told.json"]
        env = {**os.environ, "COLUMNS": "100"}
        cards = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=env, check=True).stdout
        return cards, json.loads((Path(folder) / "told.json").read_text())["kernels"]


def collected(path):
    """A record without the counters behind its metrics, which no page reads; None of a library that launched nothing."""
    record = json.loads(path.read_text()) if path.exists() else {}
    for one in [*record.get("kernels", []), *(one for run in record.get("runs", []) for one in run["passes"])]:
        one.pop("counters", None)
    return record if record.get("kernels") or record.get("runs") else None


def keep(folder):
    found = {name: collected(folder / "libraries" / f"{name}.json") for name in NAMES}
    records = {name: record for name, record in found.items() if record}
    records["jax"]["kernels"] = [kernel for kernel in records["jax"]["kernels"] if not re.search(BESIDE, kernel["name"])]
    write(LIBRARIES, records)
    drawn = record_in(ADVICE)
    drawn["drawn"] = told(drawn["drawn"], folder / "advice")
    write(ADVICE, drawn)


def megabytes(number):
    return f"{number / 1e6:.1f} MB" if number < 1e9 else f"{number / 1e9:.3f} GB"


def moved(kernel):
    return sum(kernel["explanation"]["answer"]["moved"]["sm_l2"].values())


def table_row(kernel):
    answer = kernel["explanation"]["answer"]
    multiple = answer.get("multiple", {})
    ratios = [f"{multiple[name]:.2f}x" if name in multiple else "-" for name in ("sm_l2", "dram")]
    grid = "x".join(map(str, kernel["launch"]["grid"]))
    steps = answer.get("next_steps", [])
    step = f"{steps[0]['action']}: {megabytes(steps[0]['bytes_then'])} at {steps[0]['boundary']}" if steps else ""
    return (f"| `{kernel['name'].removeprefix('void ')[:48]}` {grid} | {megabytes(moved(kernel))} | {ratios[0]} | {ratios[1]} | "
            f"{answer['verdict']} | {step} |")


def of_library(name, record):
    cards, told = explained(record)
    rows = [kernel for kernel in told if kernel["explanation"]["agreement"] != "no attention"] or told
    lines = [f"## {NAMES[name]}", "", "| kernel | moved, SM<->L2 | of what it must | at DRAM | what it does | next step |",
             "|---|---:|---:|---:|---|---|", *dict.fromkeys(map(table_row, rows))]
    cards = cards.split("\n\n")
    shown = sorted(rows, key=moved, reverse=True)[:CARDS]
    for kernel in shown if shown[0]["explanation"]["agreement"] != "no attention" else ():
        found = [card for card in cards if card.startswith(kernel["name"].removeprefix("void ")[:40])]
        if found:
            lines += ["", "```", found[0].strip("\n"), "```"]
            cards.remove(found[0])
    if name in SAID:
        what, *words = SAID[name]
        lines += ["", what, "", "```", explained(record, *map(str, words))[0].split("\n\n")[1].strip("\n"), "```"]
    return lines, rows


def advice_lines():
    record = record_in(ADVICE)
    entries = [entry for entry in record["drawn"] if "off" in entry]
    if not entries:
        return []
    kept = [entry for entry in entries if abs(entry["off"]) <= TOLERANCE]
    entries.sort(key=lambda entry: -abs(entry["off"]))
    lines = ["## Advice that was followed", "",
             f"`advice.py draw {record['seed']} {record['count']}` drew kernels, asked for advice on each and wrote down what it says that "
             "they move at the boundary that the advice is about; both were measured afterwards. "
             f"**{len(kept)} of {len(entries)} moved what was said within {TOLERANCE:.0%}** after the advice was followed; those that did not come "
             f"first. What L1 serves is no part of a closed form: a kernel that moves less than was said before it follows has its loads served there. "
             f"{len(record['passed_over'])} draws were passed over, with the reason in the record.", "",
             "| kernel | problem | advice | at | said | came | off | before, said | came |", "|---|---|---|---|---:|---:|---:|---:|---:|"]
    for entry in (entry for entry in record["drawn"] if "off" not in entry):
        problem = " ".join(map(str, entry["problem"])).replace("--", "")
        lines.append(f"| `{entry['kernel']}` {entry.get('direction', '')} | {problem} | {entry['advice'].replace('--', '')} | {entry['boundary']} "
                     "| not followed: the build has no such tile | | | | |")
    for entry in entries:
        name = "sm_l2" if entry["boundary"] == "SM<->L2" else "dram"
        sides = [side for side in entry["after"]["measured"] if side.startswith(name)]
        said, came = ({when: sum(entry[when][key][side] for side in sides) for when in ("before", "after")} for key in ("bytes", "measured"))
        problem = " ".join(map(str, entry["problem"])).replace("--", "")
        before = entry["before"].get("tile") or list(entry["before"]["choice"].values())
        advice = f"{'x'.join(map(str, before)) if 'tile' in entry['before'] else ', '.join(before)} -> {entry['advice'].replace('--', '')}"
        lines.append(f"| `{entry['kernel']}` {entry.get('direction', '')} | {problem} | {advice} | {entry['boundary']} | {megabytes(said['after'])} | "
                     f"{megabytes(came['after'])} | {100 * entry['off']:+.2f} % | {megabytes(said['before'])} | {megabytes(came['before'])} |")
    return lines + [""]


def page():
    records = record_in(LIBRARIES)
    parts, explained_ones, attention = [], 0, 0
    for name, record in records.items():
        lines, rows = of_library(name, record)
        parts += [*lines, ""]
        attention += len(rows)
        explained_ones += sum(kernel["explanation"]["agreement"] == "explained" for kernel in rows)
    machine = next(record for record in records.values() if "kernels" in record)["machine"][0]
    head = ["# Other libraries' kernels: must, moved, why, what now", "",
            f"One problem, forward and backward, on an {machine['name']}: `{' '.join(PROBLEM)}`. Kernels that `explain` takes for no attention are left "
            f"out where others are there; {explained_ones} of {attention} are explained. Below 1.00x at DRAM the L2 was warm and held the rest. `analysis/studies/foreign/collect_libraries.sh` makes the record "
            "[libraries-h200.json.gz](libraries-h200.json.gz), `analysis/studies/foreign/page.py` this page.", ""]
    return "\n".join([*head, *advice_lines(), *parts]).rstrip() + "\n"


if sys.argv[1:2] == ["keep"]:
    keep(Path(sys.argv[2]))
elif sys.argv[1:] == ["--check"]:
    if PAGE.read_text() != page():
        raise SystemExit(f"{PAGE}: not what its records make; run analysis/studies/foreign/page.py")
else:
    PAGE.write_text(page())
