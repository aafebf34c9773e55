# SPDX-License-Identifier: Apache-2.0
"""What the Python package does on a device: computes, trains, counts, stands beside others' tools.

    PYTHONPATH=SITE python3 tests/python/on_device/session.py RECORD.json [SECONDS] [MODULE...]

Each module of steps runs in a process of its own, since whoever subscribes to CUPTI first keeps it. Writes one record,
and ends with 1 where a step failed. Two minutes on an H200.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
BESIDE = ("kernels", "modified", "compiled")  # side by side: they count nothing
COUNTING = (
    "counts",
    "beside_tools",
    "sampled",
    "pages",
    "beside_profiler",
)  # after kernels: they count the whole device
ALONE = ("cost",)  # times
MOST_COLUMNS = 170


class Session:
    def __init__(self, longest_s, wanted):
        self.began = time.monotonic()
        self.longest_s = longest_s
        self.wanted = wanted
        self.folder = Path(tempfile.mkdtemp())
        self.running = {}

    def left_s(self):
        return self.longest_s - (time.monotonic() - self.began)

    def start(self, module):
        if self.wanted and module not in self.wanted or self.left_s() < 5:
            return
        command = [sys.executable, HERE / f"{module}.py", self.folder / f"{module}.json"]
        self.running[module] = subprocess.Popen(command)

    def wait_for(self, module):
        if module in self.running:
            try:
                self.running[module].wait(max(1, self.left_s()))
            except subprocess.TimeoutExpired:
                self.running[module].kill()
                print(f"{module}: the time was up", flush=True)

    def results(self):
        for module in self.running:
            path = self.folder / f"{module}.json"
            yield from json.loads(path.read_text()) if path.exists() else [{"step": module, "ok": False}]


def machine():
    snippet = "import json, tilescope; print(json.dumps(tilescope.info()))"
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True)
    facts = json.loads(done.stdout) if done.returncode == 0 else {}
    return {"machine": facts.get("device")} | {key: facts.get(key) for key in ("torch", "python", "git", "dirty")}


def text_of(value, depth=0):
    """JSON with a line for whatever fits one, and floats as people read them."""
    if isinstance(value, float):
        value = float(f"{value:.4g}")
    flat = json.dumps(value)
    if not isinstance(value, (dict, list)):
        return flat
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {text_of(entry, depth + 1)}" for key, entry in value.items()]
        opened, closed = "{", "}"
    else:
        lines = [text_of(entry, depth + 1) for entry in value]
        opened, closed = "[", "]"
    flat = opened + ", ".join(lines) + closed
    if len(flat) + depth <= MOST_COLUMNS:
        return flat
    return opened + "\n" + ",\n".join(" " * (depth + 1) + line for line in lines) + "\n" + " " * depth + closed


def main():
    path, *rest = sys.argv[1:]
    session = Session(float(rest[0]) if rest else 150, rest[1:])
    for module in BESIDE:
        session.start(module)
    session.wait_for("kernels")
    for module in COUNTING:
        session.start(module)
        session.wait_for(module)
    session.wait_for("compiled")
    for module in ALONE:
        session.start(module)
        session.wait_for(module)
    steps = list(session.results())
    record = {"schema": "tilescope.python-session/1"} | machine() | {"steps": steps}
    Path(path).write_text(text_of(record) + "\n")
    passed = sum(step["ok"] for step in steps)
    print(f"{passed} of {len(steps)} steps passed in {time.monotonic() - session.began:.0f} s")
    sys.exit(passed < len(steps))


if __name__ == "__main__":
    main()
