#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reports/drawn/README.md, from the records beside it: gpu:flash3 on problems that a seed drew, beside libraries.

    page.py            make the page
    page.py --check    say whether it is the one that the records make

Records: CARD-SEED.json.gz of both directions with peers, CARD-ordered-SEED of ordered backward passes, CARD-fp8-SUMS-SEED.
"""

import gzip
import json
import math
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "reports/drawn"
PAGE = FOLDER / "README.md"
KERNEL = "gpu:flash3"
LEAST_MEAN, LEAST_STRATUM, LEAST_PROBLEM, LEAST_ORDERED, LEAST_FP8 = 1.05, 1.00, 0.92, 0.90, 1.00
DIRECTIONS = ("forward", "backward")


def records(kind):
    """{card: {seed: record}} of records CARD-KINDSEED, cards and seeds in order."""
    found = {}
    for path in sorted(FOLDER.glob("*.json.gz")):
        name = re.fullmatch(rf"(h[12]00)-{kind}(\d+)\.json\.gz", path.name)
        if name:
            record = json.load(gzip.open(path))
            if "missing" in record:
                sys.exit(f"{path}: was interrupted before {record['missing'][0]}; no page is made of a part")
            found.setdefault(name[1], {})[name[2]] = record
    return dict(sorted(found.items(), reverse=True))


def seconds(run, direction):
    return next((p["time"]["median_s"] for p in run["passes"] if p["direction"] == direction and "time" in p), None)


def by_problem(record):
    """{problem as text: {kernel: run}}"""
    found = {}
    for run in record["runs"]:
        found.setdefault(json.dumps(run["problem"], sort_keys=True), {})[run["kernel"]] = run
    return found


def beside_best(record, direction):
    """[(problem, rate over the best peer's, that peer)]"""
    ratios = []
    for text, runs in by_problem(record).items():
        own = seconds(runs[KERNEL], direction) if KERNEL in runs else None
        peers = [(s, name) for name, run in runs.items() if name != KERNEL and (s := seconds(run, direction))]
        if own and peers:
            ratios.append((json.loads(text), min(peers)[0] / own, min(peers)[1]))
    return ratios


def beside_fused(ordered, fused):
    """[(problem, rate of the ordered pass over the fused one's, "")]"""
    of_fused = {text: seconds(runs[KERNEL], "backward") for text, runs in by_problem(fused).items() if KERNEL in runs}
    return [(json.loads(text), of_fused[text] / seconds(runs[KERNEL], "backward"), "")
            for text, runs in by_problem(ordered).items() if of_fused.get(text)]


def called(p):
    heads = f"H{p['heads']}" + ("" if p["heads"] == p["heads_kv"] else f"/{p['heads_kv']}")
    length = f"N{p['seqlen_k']}" if p["seqlen_q"] == p["seqlen_k"] else f"Nq{p['seqlen_q']} Nk{p['seqlen_k']}"
    window = "" if p["window"] == [-1, -1] else f" window({p['window'][0]},{p['window'][1]})"
    return f"B{p['batch']} {heads} {length} D{p['head_dim']} {p['dtype']}{' causal' if p['causal'] else ''}{window}"


def classes(p):
    """As strata_of() of drawn_problems.cpp names them."""
    n = p["seqlen_k"]
    tiles = p["batch"] * p["heads"] * -(-p["seqlen_q"] // 128)
    yield "all"
    yield f"head_dim {p['head_dim']}"
    yield "N < 1K" if n < 1024 else "N 1K ... 4K" if n < 4096 else "N 4K ... 16K" if n < 16384 else "N >= 16K"
    yield ("cross" if p["seqlen_q"] != n else "window" if p["window"] != [-1, -1] else
           "causal" if p["causal"] else "full")
    yield "groups" if p["heads"] > p["heads_kv"] else "as many key as query heads"
    yield "tiles of 128 queries < 132" if tiles < 132 else "tiles of 128 queries >= 132"
    yield p["dtype"]


def strata(ratios):
    """{stratum: (geometric mean, (worst, its problem), count)}"""
    found = {}
    for problem, ratio, _ in ratios:
        for name in classes(problem):
            found.setdefault(name, []).append((ratio, called(problem)))
    return {name: (math.exp(sum(math.log(r) for r, _ in those) / len(those)), min(those), len(those))
            for name, those in found.items()}


def table(columns):
    """Lines of strata, the lowest mean first behind all, of several lists of ratios side by side."""
    of = [strata(ratios) for ratios in columns]
    names = sorted({name for one in of for name in one},
                   key=lambda name: (name != "all", min(one[name][0] for one in of if name in one)))
    lines = [f"{'stratum':28} {'problems':>8} {'mean':>11} {'worst':>11}  which is worst"]
    for name in names:
        cells = [[f(one[name]) if name in one else "-" for one in of] for f in (
            lambda s: str(s[2]), lambda s: f"{s[0]:.3f}", lambda s: f"{s[1][0]:.3f}")]
        lines.append(f"{name:28} {'/'.join(cells[0]):>8} {'/'.join(cells[1]):>11} {'/'.join(cells[2]):>11}  "
                     + min(one[name][1] for one in of if name in one)[1])
    return "\n".join(["```", *lines, "```"])


def against_goals(columns, direction):
    """What was wanted and what is, of one card and direction."""
    means = [strata(ratios)["all"][0] for ratios in columns]
    below = sorted({name for ratios in columns for name, s in strata(ratios).items() if s[0] < LEAST_STRATUM})
    problems = [(ratio, called(p), peer) for ratios in columns for p, ratio, peer in ratios]
    low = sorted(x for x in problems if x[0] < LEAST_PROBLEM)
    text = (f"- {direction}: {' and '.join(f'{m:.3f}' for m in means)} ({LEAST_MEAN} wanted); strata below "
            f"{LEAST_STRATUM:.2f} in a seed: ")
    text += (", ".join(below) or "none") + f"; {len(low)} of {len(problems)} problems below {LEAST_PROBLEM}"
    return text + (": " if low else "") + "; ".join(f"{name} {ratio:.3f} ({peer.split(':')[-1]})" for ratio, name, peer in low) + "."


def drawn_section():
    parts = []
    for card, by_seed in records("").items():
        seeds, those = list(by_seed), list(by_seed.values())
        links = ", ".join(f"[{seed}]({card}-{seed}.json.gz)" for seed in seeds)
        parts.append(f"## {card.upper()}, seeds {links}\n")
        parts.append("\n".join(against_goals([beside_best(r, d) for r in those], d) for d in DIRECTIONS) + "\n")
        for direction in DIRECTIONS:
            parts.append(f"{direction.capitalize()}, the seeds in this order:\n")
            parts.append(table([beside_best(r, direction) for r in those]) + "\n")
    return "\n".join(parts)


def ordered_section():
    parts = ["## Ordered backward\n\nThe same seeds with `--backward ordered` beside the fused passes above. Within 10 % was wanted: a rate of "
             f"{LEAST_ORDERED:.2f}.\n"]
    fused = records("")
    for card, by_seed in records("ordered-").items():
        columns = [beside_fused(r, fused[card][seed]) for seed, r in by_seed.items()]
        near = sum(ratio >= LEAST_ORDERED for ratios in columns for _, ratio, _ in ratios)
        links = ", ".join(f"[{seed}]({card}-ordered-{seed}.json.gz)" for seed in by_seed)
        parts.append(f"{card.upper()}, {links}: {near} of {sum(map(len, columns))} problems are.\n\n{table(columns)}\n")
    return "\n".join(parts)


def fp8_section():
    parts = ["## In fp8, forward\n\n`bench --sweep drawn-fp8 --seed SEED --count 30 --fp8-sums fast|two-level --peers`, e4m3, beside cuDNN's `sdpa_fp8`, which "
             "leaves O in e4m3\n(in 16 bits it has this on later chips alone); `gpu:flash3` leaves it in bf16. At least "
             f"{LEAST_FP8:.2f} in every stratum was wanted of fast sums.\n"]
    for sums in ("fast", "two-level"):
        for card, by_seed in records(f"fp8-{sums}-").items():
            columns = [beside_best(r, "forward") for r in by_seed.values()]
            below = sorted({name for c in columns for name, s in strata(c).items() if s[0] < LEAST_FP8})
            links = ", ".join(f"[{seed}]({card}-fp8-{sums}-{seed}.json.gz)" for seed in by_seed)
            means = " and ".join(f"{strata(c)['all'][0]:.3f} (worst {strata(c)['all'][1][0]:.3f})" for c in columns)
            parts.append(f"{sums.capitalize()} sums, {card.upper()}, {links}: {means}; strata below {LEAST_FP8:.2f} in a seed: "
                         f"{', '.join(below) or 'none'}.\n")
            if sums == "fast":
                parts.append(table(columns) + "\n")
    return "\n".join(parts)


def page():
    text = PAGE.read_text()
    for name, made in (("drawn", drawn_section), ("ordered", ordered_section), ("fp8", fp8_section)):
        begin, end = f"<!-- generated: {name} -->\n", f"<!-- /generated: {name} -->"
        before, rest = text.split(begin)
        text = before + begin + made() + end + rest.split(end)[1]
    return text


if __name__ == "__main__":
    made = page()
    if "--check" in sys.argv:
        sys.exit(0 if made == PAGE.read_text() else f"{PAGE} is not what its records make: run {sys.argv[0]}")
    PAGE.write_text(made)
