#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reports/decode/README.md, from the records beside it: what tests/device_gate/decode and variants wrote on one card.

    page.py            make the page
    page.py --check    say whether it is the one that the records make
"""

import gzip
import json
import sys
from pathlib import Path
from statistics import geometric_mean as mean
from statistics import median

FOLDER = Path(__file__).parents[3] / "reports/decode"
PAGE = FOLDER / "README.md"
LEAST_OF_BEST, LEAST_OF_ANY, LEAST_OF_PAGES, MOST_OF_FIXED = 1.00, 0.92, 0.95, 1.05
DRAWN = ("decode-drawn", "decode-drawn-2")
DRAM_BYTES_PER_S = 4.25e12  # a copy's, as `ceilings` measured it on an H200
MATRIX_FLOPS_PER_S = 787e12  # of bf16, likewise


def record(name):
    return json.load(gzip.open(FOLDER / f"{name}.json.gz"))


def runs(name):
    return record(name)["runs"] if (FOLDER / f"{name}.json.gz").exists() else []


def by_problem(name):
    """(problem as text, {kernel: its run}) of each problem of a record."""
    found = {}
    for run in runs(name):
        found.setdefault(json.dumps(run["problem"], sort_keys=True), {})[run["kernel"]] = run
    return found.items()


def seconds(run, direction="forward"):
    return next((p["time"]["median_s"] for p in run["passes"] if p["direction"] == direction and "time" in p), None)


def beside(name):
    """(problem, own seconds, {peer: seconds}) of each problem of a record."""
    for text, by_kernel in by_problem(name):
        own = [seconds(run) for kernel, run in by_kernel.items() if kernel.startswith("gpu:")]
        peers = {kernel: seconds(run) for kernel, run in by_kernel.items() if not kernel.startswith("gpu:")}
        if own and peers:
            yield json.loads(text), own[0], peers


def called(problem):
    keys = f"N{problem['seqlen_k']}" if not problem.get("key_lengths") else f"N up to {problem['seqlen_k']}"
    heads = f"H{problem['heads']}/{problem['heads_kv']}"
    drafts = f" Nq{problem['seqlen_q']}" if problem["seqlen_q"] > 1 else ""
    pages = f" pages of {problem['page_size']}" if problem.get("page_size") else ""
    stored = "" if problem.get("kv_dtype") is None else f", {problem['kv_dtype']} keys"
    return f"B{problem['batch']} {heads}{drafts} {keys} D{problem['head_dim']} {problem['dtype']}{stored}{pages}"


def keys_of(problem):
    return sum(problem.get("key_lengths") or [problem["seqlen_k"]] * problem["batch"])


def kv_bytes(problem):
    return 2 * (1 if problem.get("kv_dtype") else 2) * keys_of(problem) * problem["heads_kv"] * problem["head_dim"]


def named():
    yield "| batch, q = 1 | gpu:decode | TB/s of K and V | cuDNN | FlashAttention-2 | FlashInfer | of the best |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for problem, own, peers in beside("decode-bench"):
        times = [f"{1e6 * peers[name]:.1f}" if name in peers else "-" for name in
                 ("pytorch:cudnn", "pytorch:flash2", "flashinfer:decode")]
        yield (f"| {called(problem)} | {1e6 * own:.1f} us | {kv_bytes(problem) / own / 1e12:.2f} | {' | '.join(times)} | "
               f"{min(peers.values()) / own:.2f} |")


def roofline():
    """Where decoding and the variants stand: FLOP a byte that must cross DRAM, and the share of the ceiling there."""
    ridge = MATRIX_FLOPS_PER_S / DRAM_BYTES_PER_S
    shares = {}
    for name in ("decode-bench", "decode-fp8"):
        for run in runs(name):
            problem = run["problem"]
            if run["kernel"] == "gpu:decode" and problem["seqlen_k"] * problem["batch"] >= 65536:
                flops = 4 * keys_of(problem) * problem["heads"] * problem["head_dim"]
                told = shares.setdefault((problem.get("kv_dtype", problem["dtype"]), flops / kv_bytes(problem)), [])
                told.append(kv_bytes(problem) / seconds(run) / DRAM_BYTES_PER_S)
    decoding = "; ".join(f"keys in {kind} {intensity:.0f} FLOP a byte, at {100 * min(s):.0f} to {100 * max(s):.0f} % of the memory's rate"
                         for (kind, intensity), s in shares.items())
    intensities, rates = [], {}
    for run in runs("variants-bench-fwd"):
        problem = run["problem"]
        if run["kernel"].startswith("gpu:"):
            flops = sum(p.get("executed_flops", 0) for p in run["passes"])
            intensities.append(flops / (2 * 4 * problem["batch"] * problem["heads"] * problem["seqlen_q"] * problem["head_dim"]))
            rates.setdefault(run["kernel"], []).append(flops / seconds(run) / MATRIX_FLOPS_PER_S)
    computing = " and ".join(f"by {kernel} at {100 * min(r):.0f} to {100 * max(r):.0f} %" for kernel, r in rates.items())
    return (f"- **On the roofline**, whose ridge is at {ridge:.0f} FLOP a byte of DRAM: decoding of long batches, {decoding}; masks and modifiers below, "
            f"forward, {min(intensities):.0f} to {max(intensities):.0f} FLOP a byte, {computing} of the tensor cores' rate: the first are bound "
            "by memory and the others by what they compute.")


def times_by_problem(*names):
    """{problem without the type of its keys: {(kernel, whether keys are fp8): seconds}}"""
    times = {}
    for name in names:
        for run in runs(name):
            of_bf16 = {field: value for field, value in run["problem"].items() if field != "kv_dtype"}
            told = times.setdefault(json.dumps(of_bf16, sort_keys=True), {})
            told.setdefault((run["kernel"], "kv_dtype" in run["problem"]), seconds(run))
    return times


def fp8_keys():
    """Keys in fp8 beside the same batches in 16 bits, of the same run."""
    yield "| batch, q = 1, keys in fp8 e4m3 | gpu:decode | TB/s of K and V | of a copy's rate | of its bf16 time | FlashInfer, fp8 | best of any in bf16 |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for text, times in times_by_problem("decode-fp8", "decode-bench").items():
        problem = {**json.loads(text), "kv_dtype": "fp8e4m3"}
        own, wide, peer = (times.get(key) for key in
                           (("gpu:decode", True), ("gpu:decode", False), ("flashinfer:decode", True)))
        if own is None or wide is None:
            continue
        rate = kv_bytes(problem) / own
        best = min(s for (_, narrow), s in times.items() if not narrow)
        yield (f"| {called(json.loads(text))} | {1e6 * own:.1f} us | {rate / 1e12:.2f} | {100 * rate / DRAM_BYTES_PER_S:.0f} % | "
               f"{own / wide:.2f} | {f'{1e6 * peer:.1f} us' if peer else '-'} | {1e6 * best:.1f} us |")


def fp8_told():
    drawn = [(times["gpu:decode", True] / times["gpu:decode", False], text) for text, times in
             times_by_problem("decode-fp8-drawn", "decode-drawn-same").items() if len(times) >= 2]
    groups = {}
    for ratio, text in drawn:
        problem = json.loads(text)
        kind = "in pages" if problem.get("page_size") else "in rows"
        length = "lengths of their own" if problem.get("key_lengths") else "one length"
        for group in ("all", kind, length):
            groups.setdefault(group, []).append(ratio)
    told = "; ".join(f"{name} ({len(ratios)}) {mean(ratios):.2f}, worst {max(ratios):.2f}" for name, ratios in groups.items())
    off, dram = [], []
    for run in runs("decode-fp8-bytes") + runs("decode-fp8-bytes-long"):
        forward = run["passes"][0]
        measured, formula = forward["measured"], forward["closed_form"]
        off.append(abs(measured["sm_l2_read_bytes"] / formula["sm_l2_read_bytes"] - 1))
        if forward.get("pack_gqa"):
            dram.append(abs(measured["dram_read_bytes"] / formula["compulsory_read_bytes"] - 1))
    return (f"- Of keys in fp8 half of the bytes move, by counters too: reads between SMs and L2 differ from the closed form by at most "
            f"{100 * max(off):.4f} %, at DRAM from what must be read by {100 * max(dram):.2f} %. Times over those of 16 bits on drawn batches: {told}. "
            "0.53 to 0.58 was expected of long ones: each number is widened in registers, and where few CTAs share an SM that takes longer than "
            "its bytes.")


def strata(name):
    classes = {}
    for problem, own, peers in beside(name):
        for group in ("all", "in pages" if problem.get("page_size") else "in rows",
                      "lengths of their own" if problem.get("key_lengths") else "one length",
                      f"head_dim {problem['head_dim']}", "N >= 16K" if problem["seqlen_k"] >= 16384 else "N < 16K"):
            classes.setdefault(group, []).append((min(peers.values()) / own, called(problem)))
    return classes


def drawn():
    for number, name in enumerate(DRAWN, 1):
        classes = strata(name)
        if not classes:
            continue
        told = []
        for group in sorted(classes, key=lambda group: (group != "all", group)):
            ratios = sorted(classes[group])
            middle = median(r for r, _ in ratios)
            told.append(f"{group} ({len(ratios)}) {mean([r for r, _ in ratios]):.2f}, median {middle:.2f}, worst {ratios[0][0]:.2f}")
        every = sorted(classes["all"])
        seed = record(name)["argv"][record(name)["argv"].index("--seed") + 1]
        yield (f"- **Draw {number}**, seed {seed}, of the best library, geometric means: {'; '.join(told)}. "
               f"{sum(ratio >= LEAST_OF_BEST for ratio, _ in every)} of {len(every)} are at least level, "
               f"{sum(ratio < LEAST_OF_ANY for ratio, _ in every)} below {LEAST_OF_ANY}; the worst is {every[0][1]}.")


def splits():
    by_length = {}
    for run in runs("decode-splits"):
        timed = seconds(run), run["passes"][0].get("splits", "1")
        by_length.setdefault(run["problem"]["seqlen_k"], []).append(timed)
    told = []
    for length, times in sorted(by_length.items()):
        fixed, policy = min(timed for timed in times if timed[1].startswith("fixed"))
        told.append(f"{length // 1024}K {fixed / min(times)[0]:.2f} ({policy})")
    return (f"- Splits of fixed length, which leave a sequence's bits alone whatever is beside it, beside the best splits of the run, "
            f"B1: {', '.join(told)}; at most {MOST_OF_FIXED} was wanted.")


def pages():
    told, missed = [], {}
    for name in ("decode-pages", "prefill-pages"):
        by_base = {}
        for run in runs(name):
            problem = dict(run["problem"])
            size = problem.pop("page_size", 0)
            by_base.setdefault((run["kernel"], json.dumps(problem, sort_keys=True)), {})[size] = seconds(run)
        for (kernel, text), times in by_base.items():
            rates = {size: times[0] / t for size, t in sorted(times.items()) if size}
            of, problem = "decoding" if name.startswith("decode") else f"prefill by {kernel}", json.loads(text)
            told.append(f"{of} {called(problem)} {', '.join(f'{size}: {rate:.2f}' for size, rate in rates.items())}")
            for size, rate in rates.items():
                if rate < LEAST_OF_PAGES:
                    missed.setdefault(f"{of} in pages of {size}", []).append((rate, f"{rate:.2f} (D{problem['head_dim']})"))
    lowest = sorted(missed.items(), key=lambda item: min(item[1]))
    below = f" Below that lie {'; '.join(f'{of} ' + ', '.join(text for _, text in those) for of, those in lowest)}." if missed else ""
    return (f"- **Pages** of so many keys: the rate over that without, of which at least {LEAST_OF_PAGES} was wanted.{below} "
            f"All: {'; '.join(told)}.")


def counted():
    reads, writes, dram, shares = [], [], [], []
    for run in [run for kind in ("", "-pages", "-long", "-mixed") for run in runs(f"decode-bytes{kind}")]:
        forward, *others = run["passes"]
        measured, formula = forward["measured"], forward["closed_form"]
        reads.append(abs(measured["sm_l2_read_bytes"] / formula["sm_l2_read_bytes"] - 1))
        if forward.get("pack_gqa"):
            dram.append(measured["dram_read_bytes"] / formula["compulsory_read_bytes"] - 1)
        writes.append(measured["sm_l2_write_bytes"] - formula["sm_l2_write_bytes"])
        combined = sum(p["measured"]["sm_l2_read_bytes"] + p["measured"]["sm_l2_write_bytes"] for p in others)
        shares.append(combined / measured["sm_l2_read_bytes"])
    by_packing = {run["passes"][0].get("pack_gqa", False): run["passes"][0] for run in runs("decode-bytes")}
    packed, alone = by_packing[True]["measured"], by_packing[False]["measured"]
    return (f"- Counters of {len(reads)} launches: reads between SMs and L2 differ from the closed form by at most {100 * max(reads):.3f} %, "
            f"and at DRAM from what must be read by at most {100 * max(dram):.2f} %. The pass that combines moves at most "
            f"{100 * max(shares):.2f} % of the bytes. Writes are up to {max(writes) / 1e3:.1f} kB more than the formula says, in part "
            f"because rows of LSE of a few heads are parts of sectors. **Packing** the 4 heads of a group divides what SMs read by "
            f"{alone['sm_l2_read_bytes'] / packed['sm_l2_read_bytes']:.2f}, and what DRAM reads by "
            f"{alone['dram_read_bytes'] / packed['dram_read_bytes']:.2f}: it shows at one boundary only.")


def variant_called(problem):
    mask = problem.get("mask", "")
    name = mask.split(":")[0] + (" mask" if mask else "")
    for key in ("softcap", "alibi", "learned_sink", "log_bias"):
        if problem.get(key):
            name = key.replace("_", " ")
    window = f"window of {problem['window'][0] + 1}" if problem["window"][0] >= 0 else ""
    return ", ".join(filter(None, ("causal" if problem["causal"] else "full", window, name)))


def modified():
    """What gpu:flash3's modifiers cost, over its causal pass."""
    times = {variant_called(run["problem"]): seconds(run) for run in runs("modifiers-flash3")}
    return ", ".join(f"{name} {times[f'causal, {name}'] / times['causal']:.2f}" for name in ("learned sink", "alibi", "softcap"))


def variants():
    yield "| gpu:flash2-mma | forward | of FlexAttention | backward | of FlexAttention | gpu:flash3, forward | of FlexAttention | backward | of FlexAttention |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    # A kernel stands beside FlexAttention of its own run: that of all variants, or else one of a mask alone.
    records = [("forward", "variants-bench-fwd"), ("backward", "variants-bench-bwd")]
    for name in sorted(path.name.split(".")[0] for path in FOLDER.glob("variants-flash3-*.json.gz")):
        records.append(("backward" if "-backward-" in name else "forward", name))
    rows = {}
    for direction, name in records:
        for text, by_kernel in by_problem(name):
            row = rows.setdefault(text, {})
            flex = by_kernel.get("pytorch:flex")
            for kernel, run in by_kernel.items():
                flops = sum(p.get("executed_flops", 0) for p in run["passes"] if p["direction"] == direction)
                row.setdefault((kernel, direction), (seconds(run, direction), flops, flex and seconds(flex, direction)))
    for text, row in rows.items():
        cells = []
        for kernel in ("gpu:flash2-mma", "gpu:flash3"):
            for direction in ("forward", "backward"):
                own, flops, flex = row.get((kernel, direction), (None, 0, None))
                cells += [f"{1e3 * own:.2f} ms, {flops / own / 1e12:.0f} TFLOP/s" if own else "-", f"{flex / own:.2f}" if own and flex else "-"]
        yield f"| {variant_called(json.loads(text))} | {' | '.join(cells)} |"


def latent():
    """Decoding of latent keys, which are values too, beside FlashInfer, whose times a script of its own took."""
    yield "| batch, q = 1, D576/512 bf16 | gpu:mla-decode | TB/s of K | FlashInfer fa3 | fa2 | torch | of fa3 | of fa2 |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    batches = json.loads((FOLDER / "mla-peers.json").read_text())["batches"]
    ratios = []
    for run, peers in zip(runs("mla-bench"), batches, strict=True):
        problem, own = run["problem"], 1e6 * seconds(run)
        keys = 2 * problem["batch"] * problem["seqlen_k"] * problem["head_dim"]
        pages = f", pages of {problem['page_size']}" if problem.get("page_size") else ""
        ratios.append((peers["fa3"] / own, peers["fa2"] / own))
        yield (f"| B{problem['batch']} H{problem['heads']}/{problem['heads_kv']} N{problem['seqlen_k']}{pages} | {own:.1f} us | {keys / own / 1e6:.2f} | "
               f"{peers['fa3']} | {peers['fa2']} | {peers['torch']} | {ratios[-1][0]:.2f} | {ratios[-1][1]:.2f} |")
    fa3, fa2 = zip(*ratios)
    yield ""
    yield (f"- **Latent keys** (multi-head latent attention, absorbed): {mean(fa2):.2f} of FlashInfer's mma.sync kernel (worst {min(fa2):.2f}), {mean(fa3):.2f} of its "
           f"wgmma kernel (worst {min(fa3):.2f}); O of 128 rows would fill the registers, so 128 heads load K twice. "
           f"Those of FlashInfer are of an earlier run, on another H200, beside which splits were chosen too. {exact('mla-bytes')}")


def exact(name):
    """How far the counters of a record lie from its closed forms."""
    passes = [p for run in runs(name) for p in run["passes"] if "measured" in p]
    far = [abs(p["measured"][key] / p["closed_form"][key] - 1) for p in passes for key in ("sm_l2_read_bytes", "sm_l2_write_bytes")]
    return f"Bytes at SM<->L2 of {len(passes)} passes are within {100 * max(far):.4f} % of the closed form."


def value_columns():
    yield "| keys of 192, values of 128 columns, forward, bf16 | gpu:flash3 | TFLOP/s | cuDNN | FlashAttention-4 | of the best |"
    yield "|---|---:|---:|---:|---:|---:|"
    ratios = []
    for problem, own, peers in beside("value-dim-bench"):
        pairs = problem["seqlen_q"] * problem["seqlen_k"] * (0.5 if problem["causal"] else 1)
        flops = 2 * problem["batch"] * problem["heads"] * pairs * (problem["head_dim"] + problem["head_dim_v"])
        ratios.append(min(peers.values()) / own)
        mask = " causal" if problem["causal"] else ""
        yield (f"| B{problem['batch']} H{problem['heads']} N{problem['seqlen_q']}{mask} | {1e3 * own:.2f} ms | {flops / own / 1e12:.0f} | "
               f"{1e3 * peers['pytorch:cudnn']:.2f} | {1e3 * peers['flash-attn:flash4']:.2f} | {ratios[-1]:.2f} |")
    yield ""
    yield f"- **Keys of 192 and values of 128 columns** (DeepSeek V3's prefill): {mean(ratios):.2f} of the best library. {exact('value-dim-bytes')}"


def make():
    machine = record("decode-bench")["machine"]
    lines = [
        "# Decoding, pages, masks and score modifiers on an " + machine["name"],
        "",
        f"From [records](.) that `tests/device_gate/decode` and `tests/device_gate/variants` wrote, beside {machine['libraries']}, each judged "
        "before it was timed, L2 cold. This page is made by `analysis/studies/serving/page.py`. A library that knows no pages read rows. Splits "
        "are chosen by times of runs before; the seeds of both draws were taken when they were run. Both draws are of the program as it is but for which threads store two numbers of a row; the "
        f"tables of batches, pages, splits of fixed length, fp8, latent keys and counters are of runs before it: tiles of 64 keys at head_dim 64, a slower pass that combines, other splits; prefill in pages is of a later run, and was judged by `verify` on smaller problems. The table of masks and modifiers is of a run before, in which soft caps were taken where exponents are; what modifiers cost is of today's. The means are raised by a few batches that the libraries are slow on; medians stand beside them.",
        "",
        *named(), "", *fp8_keys(), "", *drawn(), splits(), pages(), counted(), fp8_told(), roofline(), "",
        "B2 H16 N8192 D128 bf16; TFLOP/s are of whole visited tiles. Time in proportion to them within 5 %, modifiers for at most 3 % and the "
        "soft cap for 10 % were wanted: gpu:flash2-mma's one instance for every mask and modifier, on narrower tiles, does not give that; gpu:flash3's "
        f"modifiers take, over its causal pass, {modified()}. Forward times of both kernels are of one later run. gpu:flash3's backward times are of "
        "others, in which they were not judged, but by `verify` on smaller problems.",
        "",
        *variants(), "", *latent(), "", *value_columns(), "",
        "What users are told, and what it comes to here: *packing a group's heads saves memory traffic*: not at DRAM; *pages cost nothing, or "
        "bandwidth*: no bytes, but instructions and waiting, which show where few CTAs share an SM and where pages are small; *a mask or modifier is free once its tiles "
        "are skipped*: gpu:flash2-mma's instance that looks it up is slower in every tile; *keys in fp8 take half the time*, or *more than bf16's on Hopper*: "
        "half the bytes, and of long batches most of the time that saves.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    made = make()
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if PAGE.read_text() == made else f"{PAGE} is out of date: {Path(__file__).name} makes it")
    PAGE.write_text(made)
