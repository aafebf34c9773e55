// SPDX-License-Identifier: Apache-2.0
// Lanes that go different ways, and what they wait for.
#include <doctest/doctest.h>

#include <string>

#include "tests/emulator/sm90/run_ptx.hpp"

namespace tilescope::gpu::emulator {
namespace {

using testing::PtxRun;

/// Stores %r10 at the thread's word of `out`.
const std::string kStore =
    "mul.wide.u32 %rd9, %r0, 4;\nadd.s64 %rd9, %rd0, %rd9;\nst.global.u32 [%rd9], %r10;\n";

PtxRun run_one_warp(const std::string& body, std::uint64_t seed = 1) {
  PtxRun run;
  run.threads = 32;
  run.options.seed = seed;
  run.options.step_limit = 200000;
  run(body);
  return run;
}

TEST_CASE("emulator: lanes leave a loop each after its own number of turns, and meet behind it") {
  const auto run = run_one_warp(R"(
  mov.u32 %r10, 0;
  mov.u32 %r2, 0;
loop:
  add.u32 %r10, %r10, %r2;
  add.u32 %r2, %r2, 1;
  setp.le.u32 %p1, %r2, %r0;
  @%p1 bra loop;
  activemask.b32 %r3;
  and.b32 %r4, %r0, 1;
  setp.eq.u32 %p2, %r4, 0;
  @%p2 bra even;
  add.u32 %r10, %r10, 1000;
  bra.uni join;
even:
  @%p2 add.u32 %r10, %r10, 2000;
join:
  not.b32 %r3, %r3;
  add.u32 %r10, %r10, %r3;
)" + kStore);
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    CHECK(run.out[lane] == lane * (lane + 1) / 2 + (lane % 2 ? 1000 : 2000));
}

TEST_CASE("emulator: what a warp executes as a whole is guarded off as a whole") {
  for (const char* const whole : {"bar.sync 0", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r1]"}) {
    CAPTURE(whole);
    const auto guarded = [whole](const char* lanes) {
      run_one_warp(std::string("setp.lt.u32 %p1, %r0, ") + lanes + ";\n@%p1 " + whole + ";\n");
    };
    guarded("0");
    guarded("32");
    CHECK_THROWS_WITH_AS(guarded("16"), doctest::Contains("some lanes are guarded off"), DeviceError);
  }
}

TEST_CASE("emulator: an exchange takes all lanes that its membermask names, and no other") {
  const std::string half = "setp.lt.u32 %p1, %r0, 16;\n";
  for (const std::string exchange :
       {"shfl.sync.bfly.b32 %r10, %r0, 1, 31, ", "vote.sync.ballot.b32 %r10, %p1, ",
        "redux.sync.add.u32 %r10, %r0, ", "elect.sync %r10|%p2, "}) {
    CAPTURE(exchange);
    CHECK_NOTHROW(run_one_warp(half + exchange + "-1;\n"));
    CHECK_NOTHROW(run_one_warp(half + "@%p1 " + exchange + "0xFFFF;\n"));
    CHECK_THROWS_WITH_AS(run_one_warp(half + "@%p1 " + exchange + "-1;\n"),
                         doctest::Contains("lanes that the membermask names are guarded off"), DeviceError);
    CHECK_THROWS_WITH_AS(run_one_warp(half + exchange + "0xFFFF;\n"),
                         doctest::Contains("the membermask does not name a lane that executes"), DeviceError);
  }
}

TEST_CASE("emulator: bar.warp.sync waits for its lanes, at another place too") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const auto run = run_one_warp(R"(
  mul.lo.u32 %r2, %r0, 4;
  add.u32 %r2, %r2, %r1;
  xor.b32 %r3, %r2, 64;
  setp.lt.u32 %p1, %r0, 16;
  @%p1 bra low;
  st.shared.u32 [%r2], %r0;
  bar.warp.sync -1;
  ld.shared.u32 %r10, [%r3];
  bra.uni join;
low:
  add.u32 %r4, %r0, 100;
  st.shared.u32 [%r2], %r4;
  bar.warp.sync -1;
  ld.shared.u32 %r10, [%r3];
join:
)" + kStore,
                                  seed);
    for (std::uint32_t lane = 0; lane < 32; ++lane)
      CHECK(run.out[lane] == (lane < 16 ? lane + 16 : lane - 16 + 100));
  }
}

TEST_CASE("emulator: a lane that spins lets the others of its warp go on") {
  const auto run = run_one_warp(R"(
  mov.u32 %r2, 0;
  setp.eq.u32 %p1, %r0, 31;
  st.shared.u32 [%r1], %r2;
  bar.warp.sync -1;
  @%p1 bra release;
spin:
  ld.volatile.shared.u32 %r10, [%r1];
  setp.eq.u32 %p2, %r10, 0;
  @%p2 bra spin;
  bra.uni join;
release:
  mov.u32 %r10, 7;
  st.volatile.shared.u32 [%r1], %r10;
join:
)" + kStore);
  for (int lane = 0; lane < 32; ++lane) CHECK(run.out[lane] == 7);
}

TEST_CASE("emulator: lanes that wait for one that never comes are a deadlock with its lines") {
  const std::string body = R"(
  mov.u32 %r10, 0;
  setp.eq.u32 %p1, %r0, 3;
  @%p1 bra other;
  shfl.sync.idx.b32 %r10, %r0, 3, 31, -1;
  bra.uni join;
other:
  bar.sync 1, 64;
join:
)";
  CHECK_THROWS_WITH_AS(run_one_warp(body + kStore), doctest::Contains("deadlock"), DeviceError);
  CHECK_THROWS_WITH_AS(run_one_warp(body + kStore),
                       doctest::Contains("shfl.sync.idx.b32 %r10, %r0, 3, 31, -1;"), DeviceError);
  CHECK_THROWS_WITH_AS(run_one_warp(body + kStore),
                       doctest::Contains("lanes 0x00000008 at line 23: bar.sync 1, 64;"), DeviceError);
}

TEST_CASE("emulator: a loop without end reaches the step limit") {
  CHECK_THROWS_WITH_AS(run_one_warp("again:\nbra again;\n"), doctest::Contains("instructions and no end"),
                       DeviceError);
}

TEST_CASE("emulator: shuffles read the lanes that the ISA says, votes see all") {
  struct Case {
    std::string form, b, c;
    std::uint32_t (*source)(std::uint32_t);
    bool (*inside)(std::uint32_t);
  };
  const Case cases[] = {
      {"bfly", "5", "31", [](std::uint32_t lane) { return lane ^ 5; }, [](std::uint32_t) { return true; }},
      {"idx", "6", "0x181f", [](std::uint32_t lane) { return lane / 8 * 8 + 6; },
       [](std::uint32_t) { return true; }},
      {"up", "3", "0", [](std::uint32_t lane) { return lane < 3 ? lane : lane - 3; },
       [](std::uint32_t lane) { return lane >= 3; }},
      {"down", "3", "0x181f", [](std::uint32_t lane) { return lane % 8 < 5 ? lane + 3 : lane; },
       [](std::uint32_t lane) { return lane % 8 < 5; }},
  };
  for (const Case& one : cases) {
    const auto run = run_one_warp("shfl.sync." + one.form + ".b32 %r10|%p1, %r0, " + one.b + ", " + one.c +
                                  ", -1;\n@%p1 add.u32 %r10, %r10, 100;\n" + kStore);
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      CAPTURE(one.form);
      CHECK(run.out[lane] == one.source(lane) + (one.inside(lane) ? 100 : 0));
    }
  }
  const auto votes = run_one_warp(R"(
  setp.lt.u32 %p1, %r0, 5;
  vote.sync.ballot.b32 %r10, %p1, -1;
  vote.sync.any.pred %p2, %p1, -1;
  @%p2 add.u32 %r10, %r10, 100;
  vote.sync.all.pred %p2, %p1, -1;
  @%p2 add.u32 %r10, %r10, 1000;
  redux.sync.max.u32 %r2, %r0, -1;
  add.u32 %r10, %r10, %r2;
)" + kStore);
  CHECK(votes.out[9] == 31 + 100 + 31);
}

}  // namespace
}  // namespace tilescope::gpu::emulator
