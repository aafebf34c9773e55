# SPDX-License-Identifier: Apache-2.0
"""What a draw predicted and what was measured of it, pass by pass: read by `score`, and by who learns from spent draws."""
import glob
import gzip
import json
import math
from pathlib import Path

LEAVES_FLOOR = 1.1  # measured over compulsory bytes, from which on a pass is scored
LEAST_SHARE = 0.99  # of the compulsory bytes: a launch that reads less did not read cold


def load(path):
    with gzip.open(path) as file:
        return json.load(file)


def quantile(values, share):
    values = sorted(values)
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def is_ours(kernel):
    return kernel.startswith("gpu:")


def describe(problem):
    heads = f"H{problem['heads']}" + (
        f"/{problem['heads_kv']}" if problem["heads_kv"] != problem["heads"] else "")
    length = (f"N{problem['seqlen_q']}" if problem["seqlen_q"] == problem["seqlen_k"]
              else f"Nq{problem['seqlen_q']} Nk{problem['seqlen_k']}")
    window = problem["window"]
    mask = " causal" if problem["causal"] else f" window {window[0]},{window[1]}" if max(window) >= 0 else ""
    return f"{heads} {length} D{problem['head_dim']} {problem['dtype']}{mask}"


class Pass:
    """One pass: what was measured, and what each rival said."""

    def __init__(self, run, measured, rivals):
        self.kernel, self.problem = run["kernel"], run["problem"]
        self.name, self.direction = measured["name"], measured["direction"]
        self.closed_form, self.measured = rivals[0]["closed_form"], measured["measured"]
        self.simulated = [rival["simulated"] for rival in rivals]

    def stratum(self):
        return f"{self.kernel} {self.direction}"

    def label(self):
        return f"{self.kernel} {self.name}, {describe(self.problem)}"


class Scored:
    """Reads or writes of one pass."""

    def __init__(self, one, what):
        kind = what[:-1]
        self.one = one
        self.compulsory = one.closed_form[f"compulsory_{kind}_bytes"]
        self.measured = one.measured[f"dram_{kind}_bytes"]
        code = one.measured.get("instruction_fetch_bytes", 0) if what == "reads" else 0
        self.predicted = [s[f"dram_{kind}_bytes"] + code for s in one.simulated]
        self.interval = one.simulated[0].get(f"dram_{kind}_interval")

    def error(self, rival):
        return math.log(self.predicted[rival] / self.measured)

    def covered(self):
        return self.interval[0] <= self.measured <= self.interval[1]


def passes_of(folder, gpu, ours):
    """Of our kernels or of others': passes that were measured, those refused with the reason, and how many runs were drawn and
    measured."""
    predictions = load(f"{folder}/predictions-{gpu}.json.gz")
    names = []
    for run in predictions["runs"]:
        name = run["passes"][0]["simulated"]["machine"]
        if name in names:
            break
        names.append(name)
    rivals_of_runs = [predictions["runs"][begin:begin + len(names)] for begin in range(0, len(predictions["runs"]), len(names))
                      if is_ours(predictions["runs"][begin]["kernel"]) == ours]
    passes, refused = [], []
    path = Path(f"{folder}/measured-{gpu}.json.gz")
    runs = [run for run in load(path)["runs"] if is_ours(run["kernel"]) == ours] if path.exists() else []
    measured_runs = len(runs)
    for rivals in rivals_of_runs:
        if not runs or runs[0]["problem"] != rivals[0]["problem"] or runs[0]["kernel"] != rivals[0]["kernel"]:
            continue
        run = runs.pop(0)
        for index, measured in enumerate(run["passes"]):
            one = Pass(run, measured, [rival["passes"][index] for rival in rivals])
            least = one.measured.get("dram_read_range", [one.measured["dram_read_bytes"]])[0]
            if least < LEAST_SHARE * one.closed_form["compulsory_read_bytes"]:
                refused.append(f"{one.label()}: a launch read {least} bytes, less than the compulsory "
                               f"{one.closed_form['compulsory_read_bytes']}")
            else:
                passes.append(one)
    if runs:
        raise SystemExit(f"{path}: not what was drawn, or not in that order")
    return names, passes, refused, len(rivals_of_runs), measured_runs


def scored_of(passes, what):
    scored = []
    for one in passes:
        if one.measured.get(f"dram_{what[:-1]}_bytes") is None:
            continue
        item = Scored(one, what)
        if item.compulsory > 0 and item.measured >= LEAVES_FLOOR * item.compulsory:
            scored.append(item)
    return scored


def draws():
    """(folder, GPU, whether of our kernels): each with predictions; the one whose reads were missed the most first, and those
    that nobody measured last."""
    found = [(folder, gpu, ours) for folder in sorted(glob.glob("reports/data/drawn-*")) for gpu in ("h200", "h100")
             if Path(f"{folder}/predictions-{gpu}.json.gz").exists() for ours in (True, False)
             if any(is_ours(run["kernel"]) == ours for run in load(f"{folder}/predictions-{gpu}.json.gz")["runs"])]

    def missed(draw):
        reads = scored_of(passes_of(*draw)[1], "reads")
        return -quantile([abs(item.error(0)) for item in reads], 0.9) if reads else 0

    return sorted(found, key=missed)
