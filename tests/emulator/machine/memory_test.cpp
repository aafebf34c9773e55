// SPDX-License-Identifier: Apache-2.0
// Loads, stores, atomics, copies under way; what they may not touch, and what they cost.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "tests/emulator/sm90/run_ptx.hpp"

namespace tilescope::gpu::emulator {
namespace {

using testing::PtxRun;

TEST_CASE("emulator: accesses that lie outside or askew are named with lane, line and what is near") {
  const auto message = [](const std::string& body) -> std::string {
    PtxRun run;
    run.threads = 32;
    try {
      run(body);
    } catch (const DeviceError& error) {
      return error.what();
    }
    return {};
  };
  const std::string outside =
      message("mul.wide.u32 %rd1, %r0, 1024;\nadd.s64 %rd1, %rd1, %rd0;\nst.global.u32 [%rd1], %r0;\n");
  CHECK(outside.find("kernel test, CTA (0, 0, 0), warp 0, lane 16, line 18: st.global.u32 [%rd1], %r0;") !=
        std::string::npos);
  CHECK(outside.find("0 bytes beyond the end of 'out' of 16384 bytes") != std::string::npos);
  CHECK(message("ld.global.v2.u32 {%r2, %r3}, [%rd0+4];\n").find("lane 0, line 16: ") != std::string::npos);
  CHECK(message("ld.global.v2.u32 {%r2, %r3}, [%rd0+4];\n").find("is not aligned to 8 bytes") !=
        std::string::npos);
  CHECK(message("st.shared.u32 [%r1+33000], %r0;\n")
            .find("4 bytes at byte 33000 of shared memory, of which the CTA has 32") != std::string::npos);
  CHECK(message("mov.u32 %r2, 0;\nst.shared.u32 [%r2], %r0;\n")
            .find("4 bytes at byte -1024 of shared memory") != std::string::npos);
  CHECK(message("ld.param.u32 %r2, [test_param_0+8];\n").find("4 bytes at 8 of 8 bytes of parameters") !=
        std::string::npos);
  CHECK(message("@%p1 trap;\n").empty() == false);
}

TEST_CASE("emulator: narrow loads are extended, vectors and generic addresses reach what they name") {
  PtxRun run;
  run.threads = 32;
  run.out[0] = 0x89abcdef;
  run.out[1] = 0x01234567;
  run(R"(
  ld.global.u8 %r2, [%rd0+3];
  ld.global.s8 %r3, [%rd0+3];
  ld.global.u16 %h1, [%rd0+2];
  cvt.u32.u16 %r4, %h1;
  ld.global.v2.b32 {%r5, %r6}, [%rd0];
  cvta.shared.u64 %rd1, tile;
  st.v2.u32 [%rd1+8], {%r5, %r6};
  ld.shared.u64 %rd2, [%r1+8];
  mov.b64 {%r7, %r8}, %rd2;
  ld.u16 %h2, [%rd1+14];
  cvt.u32.u16 %r9, %h2;
  st.global.v4.u32 [%rd0+16], {%r2, %r3, %r4, %r6};
  st.global.v2.u32 [%rd0+32], {%r7, %r9};
)");
  CHECK(run.out[4] == 0x89);
  CHECK(run.out[5] == 0xffffff89);
  CHECK(run.out[6] == 0x89ab);
  CHECK(run.out[7] == 0x01234567);
  CHECK(run.out[8] == 0x89abcdef);
  CHECK(run.out[9] == 0x0123);
}

TEST_CASE("emulator: atomics of all threads add up, and return what was there") {
  PtxRun run;
  run.ctas = 3;
  run(R"(
  atom.global.add.u32 %r2, [%rd0], 1;
  mul.wide.u32 %rd1, %r2, 4;
  add.s64 %rd1, %rd1, %rd0;
  st.global.u32 [%rd1+64], 1;
  red.global.max.s32 [%rd0+4], %r0;
  mov.f32 %f1, 0f3F000000;
  red.global.add.f32 [%rd0+8], %f1;
  atom.global.cas.b32 %r3, [%rd0+12], 0, 9;
  atom.global.exch.b32 %r3, [%rd0+16], 5;
  red.global.add.v2.f32 [%rd0+24], {%f1, %f1};
  atom.global.add.v4.f32 {%f2, _, %f3, %f4}, [%rd0+32], {%f1, %f1, %f1, %f1};
)");
  CHECK(run.out[0] == 384);
  for (int i = 0; i < 384; ++i) CHECK(run.out[16 + i] == 1);
  for (int i = 6; i < 12; ++i) CHECK(run.out[i] == 0x43400000);
  CHECK(run.out[1] == 127);
  CHECK(run.out[2] == 0x43400000);  // 192
  CHECK(run.out[3] == 9);
  CHECK(run.out[4] == 5);
}

TEST_CASE("emulator: sectors and wavefronts of an access are counted") {
  const auto count = [](const std::string& stride, const std::string& access) {
    PtxRun run;
    run.threads = 32;
    return run("mul.lo.u32 %r2, %r0, " + stride + ";\nadd.u32 %r3, %r2, %r1;\ncvt.u64.u32 %rd1, %r2;\n" +
               "add.s64 %rd1, %rd1, %rd0;\n" + access);
  };
  CHECK(count("4", "ld.global.u32 %r4, [%rd1];\n").global_sectors_read == 4);
  CHECK(count("0", "ld.global.u32 %r4, [%rd1];\n").global_sectors_read == 1);
  CHECK(count("32", "ld.global.u32 %r4, [%rd1];\n").global_sectors_read == 32);
  CHECK(count("16", "st.global.v4.u32 [%rd1], {%r4, %r5, %r6, %r7};\n").global_sectors_written == 16);
  CHECK(count("4", "ld.shared.u32 %r4, [%r3];\n").shared_wavefronts == 1);
  CHECK(count("8", "ld.shared.u32 %r4, [%r3];\n").shared_wavefronts == 2);
  CHECK(count("128", "ld.shared.u32 %r4, [%r3];\n").shared_wavefronts == 32);
  CHECK(count("0", "ld.shared.u32 %r4, [%r3];\n").shared_wavefronts == 1);
  CHECK(count("16", "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];\n").shared_wavefronts == 4);
}

TEST_CASE("emulator: cp.async arrives some time until its wait, and fills up with zeros") {
  const auto run_copy = [](std::uint64_t seed, const std::string& wait) {
    PtxRun run;
    run.options.seed = seed;
    run.threads = 32;
    for (std::uint32_t i = 0; i < 4; ++i) run.out[i] = i + 1;
    run(R"(
  mov.u32 %r2, 0;
  st.shared.v4.u32 [%r1], {%r2, %r2, %r2, %r2};
  bar.warp.sync -1;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra done;
  cp.async.cg.shared.global [%r1], [%rd0], 16, 8;
  cp.async.commit_group;
)" + wait +
        R"(
  ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r1];
  st.global.v4.u32 [%rd0+64], {%r3, %r4, %r5, %r6};
done:
)");
    return std::array{run.out[16], run.out[17], run.out[18], run.out[19]};
  };
  std::set<std::uint32_t> seen;
  for (std::uint64_t seed = 1; seed <= 32; ++seed) {
    CHECK(run_copy(seed, "cp.async.wait_group 0;") == std::array<std::uint32_t, 4>{1, 2, 0, 0});
    seen.insert(run_copy(seed, "")[0]);
  }
  CHECK(seen == std::set<std::uint32_t>{0, 1});
}

TEST_CASE("emulator: what cp.async fills with zeros may lie beyond the allocation, what it reads may not") {
  // Lane n reads as many of the 16 bytes from 512 + 16 n as `reads` leaves in %r4, and writes all to 16 n.
  const auto run_copy = [](const std::string& reads, std::size_t source_bytes) {
    PtxRun run;
    run.threads = 32;
    run.out_bytes = 512 + source_bytes;
    for (std::uint32_t i = 0; i < 128; ++i) run.out[128 + i] = i + 1;
    run(R"(
  mul.lo.u32 %r2, %r0, 16;
  add.u32 %r3, %r1, %r2;
  cvt.u64.u32 %rd1, %r2;
  add.s64 %rd1, %rd1, %rd0;
)" + reads +
        R"(
  cp.async.cg.shared.global [%r3], [%rd1+512], 16, %r4;
  cp.async.wait_all;
  ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r3];
  st.global.v4.u32 [%rd1], {%r5, %r6, %r7, %r8};
)");
    return run.out;
  };
  // 4, 8, 12, 16, 0, 4, ... bytes
  const auto some = run_copy("add.u32 %r4, %r0, 1;\nrem.u32 %r4, %r4, 5;\nmul.lo.u32 %r4, %r4, 4;\n", 512);
  for (std::uint32_t i = 0; i < 128; ++i) CHECK(some[i] == (i % 4 < (i / 4 + 1) % 5 ? i + 1 : 0));

  // The last lane half of its bytes.
  const std::string half = "setp.eq.u32 %p1, %r0, 31;\nselp.u32 %r4, 8, 16, %p1;\n";
  const auto most = run_copy(half, 504);
  for (std::uint32_t i = 0; i < 128; ++i) CHECK(most[i] == (i < 126 ? i + 1 : 0));
  CHECK_THROWS_WITH_AS(run_copy(half, 500), doctest::Contains("lane 31"), DeviceError);
  CHECK_THROWS_WITH_AS(run_copy("add.s64 %rd1, %rd1, 8;\nmov.u32 %r4, 8;\n", 512),
                       doctest::Contains("not aligned to 16 bytes"), DeviceError);
}

}  // namespace
}  // namespace tilescope::gpu::emulator
