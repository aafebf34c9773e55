# SPDX-License-Identifier: Apache-2.0
# Whether advice comes true. `advice.py draw SEED COUNT` draws so many of our kernels and so many Triton ones, asks for
# advice on each without a GPU, and prints what it says that they move before and after it is followed:
# of ours `simulate --tune-bytes`, of Triton's the next step of `explain`, on a record with the launch as compiled here and the bytes of
# the closed form. `advice.py run DRAWN.json FOLDER` measures both on a GPU, `advice.py told DRAWN.json FOLDER` prints one record
# of all. TILESCOPE names the program.
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

TILESCOPE = os.environ.get("TILESCOPE", "./tilescope")
HERE = Path(__file__).parent
LEAST_GAIN = 0.05  # of the bytes at the boundary that the advice is about
OURS = (("gpu:flash2-mma", "fwd"), ("gpu:flash2-mma", "bwd"), ("gpu:flash1", "fwd"), ("gpu:flash1", "bwd"),
        ("gpu:flash1-mma", "fwd"), ("gpu:flash3", "fwd"), ("gpu:flash3", "bwd"), ("gpu:standard", "bwd"))
ON_CUDA_CORES = ("gpu:flash1", "gpu:standard")
BOUNDARIES = {"sm_l2": "SM<->L2", "dram": "DRAM"}


def tilescope(*words, timeout=120):
    """The record that a command writes, or the reason why there is none."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [TILESCOPE, *map(str, words), "--quiet", "--json", file.name]
        try:
            told = subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return None, f"took more than {timeout} s"
        if told.returncode:
            return None, told.stderr.strip().splitlines()[-1]
        return json.loads(Path(file.name).read_text()), ""


SIDES = [f"{boundary}_{way}_bytes" for boundary in BOUNDARIES for way in ("read", "write")]


def bytes_of(passes, source):
    """Of all passes, by side of each boundary; a side that was not counted is left out."""
    return {side: sum(one[source][side] for one in passes) for side in SIDES if all(side in one[source] for one in passes)}


def at(boundary, sides, counted=SIDES):
    return sum(value for side, value in sides.items() if side.startswith(boundary) and side in counted)


def boundary_of(before, after):
    """Where the advice gains most, and the share that it gains."""
    gains = {name: 1 - at(name, after) / at(name, before) for name in BOUNDARIES}
    return max(gains.items(), key=lambda gain: gain[1])


def draw_problem(draw, lengths, groups):
    heads = draw.choice((4, 8, 16, 32))
    group = draw.choice(groups)
    return ["--batch", draw.choice((1, 2)), "--heads", heads, "--heads-kv", max(1, heads // group), "--seqlen",
            draw.choice(lengths), "--head-dim", draw.choice((64, 128)), "--dtype", draw.choice(("fp16", "bf16")),
            *(["--causal"] if draw.random() < 0.5 else [])]


# --- ours -----------------------------------------------------------------------------------------------------


def words_of(choice):
    return [word for name, value in choice.items() for word in ("--" + name, value)]


def told_choices(given, first):
    """What `simulate --tune-bytes` names as least, by boundary, as options."""
    command = [TILESCOPE, "simulate", *map(str, given), "--tune-bytes", *words_of(first)]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return [], "took more than 120 s"
    lines = [line.split(":", 1)[1].split() for line in told.stdout.splitlines() if line.strip().startswith("least ")]
    choices = [{name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2])} for words in lines]
    return choices, told.stderr.strip()


def draw_ours(draw):
    kernel, direction = draw.choice(OURS)
    slow = kernel in ON_CUDA_CORES
    problem = draw_problem(draw, (1024, 2048) if slow else (4096, 8192, 16384), (1, 1, 4))
    first = {"order": draw.choice(("row-major", "longest-first", "head-swizzled")),
             "scan": draw.choice(("ascending", "descending", "sawtooth"))}
    given = [*problem, "--kernel", kernel, "--pass", direction, "--machine", "h200"]
    entry = {"kernel": kernel, "problem": problem, "direction": direction, "before": {"choice": first}}
    own, reason = tilescope("simulate", *given, *words_of(first))
    if not own:
        return entry, reason
    entry["before"]["bytes"] = bytes_of(own["runs"][0]["passes"], "simulated")
    choices, reason = told_choices(given, first)
    best = None
    for choice in choices:
        record, reason = tilescope("simulate", *given, *words_of(choice))
        if not record:
            return entry, reason
        after = bytes_of(record["runs"][0]["passes"], "simulated")
        boundary, gain = boundary_of(entry["before"]["bytes"], after)
        if not best or gain > best[0]:
            best = gain, boundary, choice, after
    if not best:
        return entry, reason
    gain, boundary, choice, after = best
    if gain < LEAST_GAIN:
        return entry, "is told nothing better"
    entry |= {"advice": " ".join(words_of(choice)), "by": "simulate --tune-bytes", "boundary": BOUNDARIES[boundary],
              "after": {"choice": choice, "bytes": after}}
    return entry, ""


# --- Triton's -------------------------------------------------------------------------------------------------


def predicted_bytes(name, words, tile, scan="ascending"):
    """Of the schedule behind the kernel, by closed form and by replay."""
    pass_name = name.removeprefix("triton_attn_")
    block_m, block_n = reversed(tile) if pass_name == "dkdv" else tile
    record, reason = tilescope("simulate", *words, "--kernel", "cpu:flash2", "--tile", f"{block_m}x{block_n}", "--pass",
                               "fwd" if pass_name == "forward" else "bwd", "--machine", "h200", "--scan", scan,
                               *([] if pass_name == "forward" else ["--backward", "split"]))
    if not record:
        return None, reason
    return next(one["simulated"] for one in record["runs"][0]["passes"] if one["name"] == pass_name), ""


def sides_of(simulated):
    return {side: simulated[side] for side in SIDES}


def explained(record, words, name):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(record, file)
        file.flush()
        return tilescope("explain", file.name, *words, "--kernel-filter", name + "$")


def record_of(name, launch, simulated):
    measured = {key: simulated[key] for key in ("sm_l2_read_bytes", "sm_l2_write_bytes", "dram_read_bytes")}
    return {"schema": "tilescope.kernels/1", "argv": ["advice.py", "draw"], "when": "2000-01-01T00:00:00Z", "exit_code": 0, "metrics": "traffic,causes", "complete": True,
            "machine": [{"name": "NVIDIA H200", "chip": "GH100", "driver": "13.0", "replay": "kernel", "passes": 1}],
            "kernels": [{"name": name, "launch": launch, "measured": measured}]}


def follow(step, tile):
    """The tile, order of steps and of CTAs that an action asks for."""
    action = step["action"]
    if action.startswith("tiles of "):
        rows, inner = action.removeprefix("tiles of ").split(" x ")
        return {"tile": [int(rows), int(inner)]}
    if action == "CTAs head after head, inner tiles forth and back":
        return {"tile": tile, "sawtooth": True}
    if action == "CTAs of the heads that share K and V side by side":
        return {"tile": tile, "side_by_side": True}
    return None


def draw_triton(draw):
    name = draw.choice(("triton_attn_forward", "triton_attn_forward", "triton_attn_dkdv", "triton_attn_dq"))
    tile = [draw.choice((64, 128)), draw.choice((32, 64, 128))]
    problem = draw_problem(draw, (2048, 4096, 8192), (1, 1, 4))
    entry = {"kernel": name, "problem": problem, "before": {"tile": tile}}
    named = dict(zip(problem[:12:2], problem[1:12:2])) | {"--causal": "--causal" in problem}
    from triton_launch import launch_without_spills  # Triton is needed to draw alone

    launch, reason = launch_without_spills(name, named, *tile)
    if not launch:
        return entry, reason
    simulated, reason = predicted_bytes(name, problem, tile)
    if not simulated:
        return entry, reason
    told, reason = explained(record_of(name, launch, simulated), problem, name)
    if not told:
        return entry, reason
    kernel = told["kernels"][0]["explanation"]
    steps = kernel["answer"].get("next_steps", [])
    if kernel["agreement"] != "explained" or not steps:
        return entry, f"is told no next step: {kernel['answer']['verdict']}"
    step = steps[0]
    way = follow(step, tile)
    if way is None or 1 - step["bytes_then"] / step["bytes_now"] < LEAST_GAIN:
        return entry, f"is told what it cannot follow, or little: {step['action']}"
    rows, inner = way["tile"] if name != "triton_attn_dkdv" else reversed(way["tile"])
    after, reason = launch_without_spills(name, named, rows, inner)
    then, _ = predicted_bytes(name, problem, (rows, inner), "sawtooth" if way.get("sawtooth") else "ascending")
    if not after:
        return entry, f"cannot be built in {step['action']}: {reason}"
    entry["before"] |= {"warps": launch["block"][0] // 32, "bytes": sides_of(simulated)}
    entry |= {"advice": step["action"], "by": "explain", "boundary": step["boundary"],
              "after": way | {"tile": [rows, inner], "warps": after["block"][0] // 32, "bytes": sides_of(then)}}
    return entry, "" if at("sm_l2", entry["after"]["bytes"]) == step["bytes_then"] or step["boundary"] != "SM<->L2" else (
        "has another closed form than explain says")


def draw_all(seed, count):
    draw = random.Random(seed)
    drawn, passed_over = [], []
    for family in (draw_ours, draw_triton):
        found = 0
        while found < count and len(passed_over) < 10 * count:
            entry, reason = family(random.Random(draw.getrandbits(32)))
            if reason:
                passed_over.append({key: entry[key] for key in ("kernel", "problem", "before")} | {"reason": reason})
            else:
                drawn.append(entry)
                found += 1
            print(entry["kernel"], entry.get("advice", reason), file=sys.stderr)
    return {"seed": seed, "count": count, "drawn": drawn, "passed_over": passed_over}


# --- on a GPU -------------------------------------------------------------------------------------------------


def launch_all(drawn, when):
    """Launches each Triton kernel once, in an NVTX range with its number; attention's other kernels stay outside."""
    import torch
    from triton_attention import triton_attention

    for number, entry in enumerate(drawn):
        if not entry["kernel"].startswith("triton"):
            continue
        named = dict(zip(entry["problem"][:12:2], entry["problem"][1:12:2]))
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[named["--dtype"]]
        shape = (named["--seqlen"], named["--head-dim"])
        q, k, v, dout = (torch.randn(named["--batch"], named[heads], *shape, device="cuda", dtype=dtype)
                         for heads in ("--heads", "--heads-kv", "--heads-kv", "--heads"))
        way = entry[when]
        triton_attention(*way["tile"], q, k, v, dout, "--causal" in entry["problem"], only=entry["kernel"], warps=way["warps"],
                         sawtooth=way.get("sawtooth", False), side_by_side=way.get("side_by_side", False))
        torch.cuda.synchronize()
        print(f"{when} {number}: {entry['kernel']} in tiles of {way['tile']}, {way['warps']} warps", flush=True)


def run(drawn, folder):
    folder.mkdir(exist_ok=True)
    for when in ("before", "after"):
        command = [TILESCOPE, "profile", "--metrics", "traffic,causes", "--kernel-filter", "triton_attn", "--quiet", "--json",
                   folder / f"triton-{when}.json", "--", sys.executable, HERE / "advice.py", "launch", sys.argv[2], when]
        subprocess.run(command, check=False)
    for number, entry in enumerate(drawn):
        if entry["kernel"].startswith("triton"):
            continue
        for when in ("before", "after"):
            command = [TILESCOPE, "profile", "--kernel", entry["kernel"], *map(str, entry["problem"]), "--pass", entry["direction"],
                       *words_of(entry[when]["choice"]), "--metrics", "traffic", "--no-verify", "--closed-form", "--quiet",
                       "--json", folder / f"{number:02}-{when}.json"]
            subprocess.run(command, check=False)


def measured_triton(drawn, folder, when):
    """Of each Triton entry the counters of its launch: they stand in the order of the entries, among those that lead up to them."""
    path = folder / f"triton-{when}.json"
    if not path.exists():
        return {}
    kernels = iter(json.loads(path.read_text())["kernels"])
    measured = {}
    for number, entry in enumerate(drawn):
        if not entry["kernel"].startswith("triton"):
            continue
        forward = entry["kernel"] == "triton_attn_forward"
        launches = [next(kernels, None) for _ in range(1 if forward else 4)]
        asked = [one for one in launches if one and one["name"] == entry["kernel"]]
        if len(asked) != 1:
            raise SystemExit(f"{path}: its launches are not those of the entries")
        measured[number] = bytes_of(asked, "measured")
    return measured


def told(drawn, folder):
    """Each entry with what was measured, and whether its advice came true."""
    triton = {when: measured_triton(drawn, folder, when) for when in ("before", "after")}
    for number, entry in enumerate(drawn):
        for when in ("before", "after"):
            path = folder / f"{number:02}-{when}.json"
            if number in triton[when]:
                entry[when]["measured"] = triton[when][number]
            elif path.exists():
                entry[when]["measured"] = bytes_of(json.loads(path.read_text())["runs"][0]["passes"], "measured")
        if not all("measured" in entry[when] for when in ("before", "after")):
            print(f"{entry['kernel']}: not measured")
            continue
        name = next(name for name, shown in BOUNDARIES.items() if shown == entry["boundary"])
        counted = entry["after"]["measured"]
        said = {when: at(name, entry[when]["bytes"], counted) for when in ("before", "after")}
        came = {when: at(name, entry[when]["measured"]) for when in ("before", "after")}
        entry["off"] = came["after"] / said["after"] - 1
        print(f"{entry['kernel']:20} {entry['boundary']:8} said {said['before'] / 1e6:9.1f} -> {said['after'] / 1e6:9.1f} MB, came "
              f"{came['before'] / 1e6:9.1f} -> {came['after'] / 1e6:9.1f} MB, off {100 * entry['off']:+6.2f} %  {entry['advice']}")
    return drawn


def record_in(path):
    return json.loads(gzip.decompress(path.read_bytes()))


def main():
    command, drawn = sys.argv[1], None
    if command == "draw":
        print(json.dumps(draw_all(int(sys.argv[2]), int(sys.argv[3])), indent=1))
        return
    drawn = record_in(Path(sys.argv[2]))["drawn"]
    if command == "run":
        run(drawn, Path(sys.argv[3]))
    elif command == "told":
        told(drawn, Path(sys.argv[3]))
    elif command == "launch":
        for when in ("before", "after") if sys.argv[3] == "warm" else (sys.argv[3],):
            launch_all(drawn, when)


if __name__ == "__main__":
    main()
