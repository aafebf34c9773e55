# SPDX-License-Identifier: Apache-2.0
"""PTX of kernels that store parts of sectors, with a wait between two of them whose length is known."""

from __future__ import annotations

import dataclasses

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
_VALUES = {2: ("u16", "%h"), 4: ("u32", "%v0"), 8: ("v2.u32", "{%v0, %v1}"), 16: ("v4.u32", "{%v0, %v1, %v2, %v3}")}


@dataclasses.dataclass(frozen=True)
class Store:
    """Each lane stores `bytes` at `offset` + `stride` * lane; with `rows`, lanes from 16 on that far behind the others."""

    offset: int
    bytes: int
    stride: int
    rows: int = 0
    way: str = ""


@dataclasses.dataclass(frozen=True)
class Load:
    """Of 4 bytes a lane; with `wait`, the warp waits for it."""

    offset: int
    stride: int
    way: str = ""
    wait: bool = False


@dataclasses.dataclass(frozen=True)
class Wait:
    """Multiplications that wait for each other, 4 cycles each, in a block of their own."""

    count: int


@dataclasses.dataclass(frozen=True)
class Plain:
    """A line of PTX as it is."""

    text: str


@dataclasses.dataclass
class Kernel:
    """`programs` are each warp's, or one for all; `rounds` times, each `pitch` bytes further, `gap` multiplications apart."""

    family: str
    name: str
    programs: list[list[Store | Load | Wait | Plain]]
    warps: int = 1
    rounds: int = 32
    pitch: int = 8192
    warp_pitch: int = 0
    cta_pitch: int = 0
    gap: int = 320
    together: bool = False  # warps wait for each other before each round
    grid: int = 1

    def ptx(self) -> str:
        return _Writer(self).text()


class _Writer:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.loops = 0
        self.places: dict[tuple[int, int], str] = {}  # address registers by stride and rows

    def wait(self, count: int) -> None:
        """A loop whose length ptxas does not know: it moves nothing across."""
        if not count:
            return
        self.loops += 1
        turns, body = (1, count) if count <= 40 else (count // 16, 16)
        self.lines += [f"add.u32 %n, %zero, {turns};", '.pragma "nounroll";', f"LOOP{self.loops}:"]
        self.lines += ["mad.lo.u32 %x, %x, %x, %zero;"] * body
        self.lines += ["sub.u32 %n, %n, 1;", "setp.ne.u32 %p, %n, 0;", f"@%p bra LOOP{self.loops};"]

    def place(self, stride: int, rows: int) -> str:
        return self.places.setdefault((stride, rows), f"%a{len(self.places)}")

    def program(self, steps: list[Store | Load | Wait | Plain]) -> None:
        for step in steps:
            if isinstance(step, Wait):
                self.wait(step.count)
            elif isinstance(step, Store):
                kind, value = _VALUES[step.bytes]
                place = self.place(step.stride, step.rows)
                self.lines.append(f"st.global{step.way}.{kind} [{place}+{step.offset}], {value};")
            elif isinstance(step, Load):
                self.lines.append(f"ld.global{step.way}.u32 %l, [{self.place(step.stride, 0)}+{step.offset}];")
                waits = ["setp.ne.u32 %p, %l, %zero;", "@%p bra NEVER;"]
                self.lines += waits if step.wait else ["add.u32 %sum, %sum, %l;"]
            else:
                self.lines.append(step.text)

    def text(self) -> str:
        kernel = self.kernel
        if len(kernel.programs) == 1:
            self.program(kernel.programs[0])
        for warp, steps in enumerate(kernel.programs if len(kernel.programs) > 1 else []):
            self.lines += [f"setp.ne.u32 %p, %w, {warp};", f"@%p bra WARP{warp};"]
            self.program(steps)
            self.lines += ["bra DONE;", f"WARP{warp}:"]
        self.lines.append("DONE:")
        self.wait(kernel.gap)
        body, places = self.lines, self.places
        registers = [
            ".shared .align 16 .b8 sh[4096];", ".reg .pred %p, %never;", ".reg .b16 %h;",
            ".reg .b32 %x, %zero, %n, %r, %w, %lane, %l, %sum, %v<4>, %sh, %m;",
            f".reg .b64 %base, %q, %a<{len(places) + 1}>, %o<{len(places) + 1}>;",
        ]  # fmt: skip
        begin = [
            "ld.param.u64 %base, [out];", "ld.param.u32 %zero, [zero];",
            "mov.u32 %x, %tid.x;", "and.b32 %lane, %x, 31;", "shr.u32 %w, %x, 5;", "mov.u32 %sh, sh;",
            "shl.b32 %m, %x, 2;", "add.u32 %sh, %sh, %m;", "and.b32 %x, %x, %zero;", "mov.u32 %sum, %zero;",
            "setp.ne.u32 %never, %zero, 0;", *(f"add.u32 %v{i}, %zero, {17 + i};" for i in range(4)), "cvt.u16.u32 %h, %v0;",
            f"mul.wide.u32 %q, %w, {kernel.warp_pitch};", "add.u64 %base, %base, %q;", "mov.u32 %m, %ctaid.x;",
            f"mul.wide.u32 %q, %m, {kernel.cta_pitch};", "add.u64 %base, %base, %q;",
        ]  # fmt: skip
        for (stride, rows), place in places.items():
            apart = rows - 16 * stride if rows else 0
            begin += ["shr.u32 %m, %lane, 4;", f"mul.lo.u32 %m, %m, {apart};", f"mad.lo.u32 %m, %lane, {stride}, %m;"]
            begin.append(f"cvt.u64.u32 {place.replace('a', 'o')}, %m;")
        round_ = ["mov.u32 %r, 0;", '.pragma "nounroll";', "ROUND:"]
        round_ += [f"add.u64 {place}, %base, {place.replace('a', 'o')};" for place in places.values()]
        round_ += ["@%never bra NEVER;"] + ["bar.sync 0;"] * kernel.together
        end = [
            f"add.u64 %base, %base, {kernel.pitch};", "add.u32 %r, %r, 1;", f"setp.lt.u32 %p, %r, {kernel.rounds};",
            "@%p bra ROUND;", "NEVER:", "add.u32 %sum, %sum, %x;", "setp.ne.u32 %p, %sum, 0;",
            "@%p st.global.u32 [%base], %sum;", "ret;",
        ]  # fmt: skip
        parameters = "(.param .u64 out, .param .u32 zero)"
        return "\n".join(
            [f".visible .entry {kernel.name}{parameters}", "{", *registers, *begin, *round_, *body, *end, "}"]
        )
