// SPDX-License-Identifier: Apache-2.0
// The named barriers of a CTA, and the order of its warps.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "tests/emulator/sm90/run_ptx.hpp"

namespace tilescope::gpu::emulator {
namespace {

using testing::PtxRun;

const std::string kAddresses =
    "mul.lo.u32 %r2, %r0, 4;\nadd.u32 %r3, %r1, %r2;\ncvt.u64.u32 %rd1, %r2;\nadd.s64 %rd1, %rd1, %rd0;\n";
/// Each thread reads what the thread of the next warp has stored.
const std::string kReadNext =
    "add.u32 %r4, %r2, 128;\nand.b32 %r4, %r4, 511;\nadd.u32 %r4, %r4, %r1;\nld.shared.u32 %r5, [%r4];\n"
    "st.global.u32 [%rd1], %r5;\n";

TEST_CASE("emulator: bar.sync has all warps see each other's stores, without it some do not") {
  std::set<bool> right;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    for (const bool synchronised : {true, false}) {
      PtxRun run;
      run.options.seed = seed;
      run(kAddresses + "st.shared.u32 [%r3], %r0;\n" + (synchronised ? "bar.sync 0;\n" : "") + kReadNext);
      bool all = true;
      for (std::uint32_t i = 0; i < 128; ++i) all &= run.out[i] == (i + 32) % 128;
      if (synchronised) CHECK(all);
      if (!synchronised) right.insert(all);
    }
  }
  CHECK(right.count(false) == 1);
}

TEST_CASE("emulator: a CTA that arrives at its cluster's barrier and leaves is not counted for another") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    PtxRun run;
    run.ctas = run.cluster = 3;
    run.threads = 32;
    run.options.seed = seed;
    // Rank 0 leaves, rank 1 reads what rank 2 stores late.
    run(R"(
  mov.u32 %r2, %cluster_ctarank;
  setp.eq.u32 %p1, %r2, 2;
  @!%p1 bra meet;
  mov.u32 %r3, 0;
later:
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p2, %r3, 2000;
  @%p2 bra later;
  st.global.u32 [%rd0], %r3;
meet:
  barrier.cluster.arrive.release.aligned;
  setp.eq.u32 %p3, %r2, 0;
  @%p3 bra out;
  barrier.cluster.wait.acquire.aligned;
  setp.ne.u32 %p4, %r2, 1;
  @%p4 bra out;
  ld.global.u32 %r4, [%rd0];
  st.global.u32 [%rd0+4], %r4;
out:)");
    CHECK(run.out[1] == 2000);
  }
}

TEST_CASE("emulator: at a cluster's barrier a warp arrives, then waits") {
  PtxRun run;
  CHECK_THROWS_WITH_AS(run("barrier.cluster.wait.aligned;\n"), doctest::Contains("has not arrived"),
                       DeviceError);
  CHECK_THROWS_WITH_AS(run("barrier.cluster.arrive.aligned;\nbarrier.cluster.arrive.aligned;\n"),
                       doctest::Contains("has not waited"), DeviceError);
}

TEST_CASE("emulator: who arrives does not wait, who waits is not counted twice") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    PtxRun run;
    run.threads = 64;
    run.options.seed = seed;
    // Warp 0 makes three values, warp 1 takes each before the next comes.
    run(kAddresses + R"(
  mov.u32 %r6, 0;
  setp.lt.u32 %p1, %r0, 32;
  @!%p1 bra taker;
maker:
  mad.lo.u32 %r7, %r6, 100, %r0;
  st.shared.u32 [%r3], %r7;
  bar.arrive 1, 64;
  bar.sync 2, 64;
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p2, %r6, 3;
  @%p2 bra maker;
  ret;
taker:
  bar.sync 1, 64;
  ld.shared.u32 %r7, [%r3+-128];
  st.global.u32 [%rd1], %r7;
  add.s64 %rd1, %rd1, 256;
  bar.arrive 2, 64;
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p2, %r6, 3;
  @%p2 bra taker;
)");
    for (std::uint32_t turn = 0; turn < 3; ++turn) {
      for (std::uint32_t lane = 0; lane < 32; ++lane)
        CHECK(run.out[64 * turn + 32 + lane] == 100 * turn + lane);
    }
  }
}

TEST_CASE("emulator: bar.red tells all what some say, warps that have left are not waited for") {
  PtxRun run;
  run(kAddresses + R"(
  setp.ge.u32 %p1, %r0, 96;
  @%p1 ret;
  setp.eq.u32 %p2, %r0, 40;
  bar.red.or.pred %p3, 0, %p2;
  selp.u32 %r5, 1, 0, %p3;
  bar.red.and.pred %p3, 0, %p2;
  @%p3 add.u32 %r5, %r5, 10;
  bar.red.popc.u32 %r6, 0, !%p2;
  mad.lo.u32 %r5, %r6, 100, %r5;
  st.global.u32 [%rd1], %r5;
)");
  CHECK(run.out[0] == 9501);
  CHECK(run.out[95] == 9501);
  CHECK(run.out[96] == 0);
}

TEST_CASE("emulator: who names all threads of the CTA meets who names no number") {
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    PtxRun run;
    run.options.seed = seed;
    run(kAddresses + R"(
  setp.lt.u32 %p1, %r0, 64;
  st.shared.u32 [%r3], %r0;
  @%p1 bar.sync 0;
  @!%p1 bar.sync 0, 128;
)" + kReadNext);
    for (std::uint32_t i = 0; i < 128; ++i) CHECK(run.out[i] == (i + 32) % 128);
  }
}

TEST_CASE("emulator: barriers that cannot be met are errors with their lines") {
  const auto fails = [](const std::string& body, const std::string& words) {
    CAPTURE(body);
    CHECK_THROWS_WITH_AS(PtxRun{}(body), doctest::Contains(words.c_str()), DeviceError);
  };
  fails("bar.sync 1, 160;\n", "deadlock: every warp waits for another\n  CTA (0, 0, 0), warp ");
  fails("bar.sync 1, 160;\n", "line 16: bar.sync 1, 160;");
  fails("bar.sync 16;\n", "barrier 16 does not exist");
  fails("bar.sync 1, 48;\n", "a barrier of 48 threads, which are not whole warps");
  fails("setp.lt.u32 %p1, %r0, 32;\nselp.u32 %r2, 96, 128, %p1;\nbar.sync 1, %r2;\n",
        "at which others wait for");
  fails("setp.lt.u32 %p1, %r0, 32;\n@%p1 bar.sync 0, 96;\n@!%p1 bar.sync 0;\n", "128");
}

TEST_CASE("emulator: a seed is a run, another seed another one") {
  const auto order = [](std::uint64_t seed) {
    PtxRun run;
    run.options.seed = seed;
    run.ctas = 8;
    run(kAddresses +
        "mov.u32 %r4, %ctaid.x;\nmad.lo.u32 %r4, %r4, 128, %r0;\nadd.u32 %r4, %r4, 1;\n"
        "atom.global.add.u32 %r5, [%rd0], 1;\nmul.wide.u32 %rd2, %r5, 4;\nadd.s64 %rd2, %rd2, %rd0;\n"
        "st.global.u32 [%rd2+4], %r4;\n");
    return run.out;
  };
  const auto first = order(1);
  CHECK(first[0] == 1024);
  CHECK(first == order(1));
  CHECK(first != order(2));
}

}  // namespace
}  // namespace tilescope::gpu::emulator
