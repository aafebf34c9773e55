// SPDX-License-Identifier: Apache-2.0
// Bulk copies without a tensor map, and copies of threads that an mbarrier counts.
#include <doctest/doctest.h>

#include "tests/emulator/sm90/run_ptx.hpp"

namespace tilescope::gpu::emulator::bulk_ptx_test {

using testing::PtxRun;

/// Thread 0 is %p0; the barrier's address is %r2, and it awaits one arrival.
const std::string kBegin = R"(
mov.u32 %r2, barrier;
setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared.b64 [%r2], 1;
@%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
)";
const std::string kExpect = "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 512;\n";
const std::string kLoad =
    "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 512, [%r2];\n";
const std::string kAwait = R"(
WAIT:
mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0;
@!%p1 bra WAIT;
)";
/// Thread i stores its word, one larger, at word 1024 + i.
const std::string kShow = R"(
shl.b32 %r8, %r0, 2;
add.u32 %r9, %r1, %r8;
ld.shared.u32 %r10, [%r9];
add.u32 %r10, %r10, 1;
cvt.u64.u32 %rd1, %r8;
add.s64 %rd1, %rd0, %rd1;
st.global.u32 [%rd1+4096], %r10;
)";

void fill(PtxRun& run) {
  for (std::uint32_t i = 0; i < 128; ++i) run.out[i] = 7 * i;
}

TEST_CASE("emulator: a bulk copy lands before its barrier's phase is over, and seldom before") {
  int early = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    PtxRun run;
    fill(run);
    run.options.seed = seed;
    run.options.races = true;
    CHECK(run(kBegin + kExpect + kLoad + kAwait + kShow).races.empty());
    for (std::uint32_t i = 0; i < 128; ++i) CHECK(run.out[1024 + i] == 7 * i + 1);
    PtxRun impatient;
    fill(impatient);
    impatient.options.seed = seed;
    impatient.options.races = true;
    CHECK_FALSE(impatient(kBegin + kExpect + kLoad + kShow + kAwait).races.empty());
    early += impatient.out[1024 + 5] != 36;
  }
  CHECK(early > 0);
}

TEST_CASE("emulator: bulk copies out of shared memory are stored when their groups are awaited") {
  const auto body = [](const std::string& fence) {
    return R"(
shl.b32 %r8, %r0, 2;
add.u32 %r9, %r1, %r8;
st.shared.u32 [%r9], %r0;
)" + fence +
           R"(
bar.sync 0;
setp.eq.u32 %p0, %r0, 0;
add.s64 %rd2, %rd0, 1024;
@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 512;
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group 0;
)";
  };
  PtxRun run;
  run(body("fence.proxy.async;"));
  for (std::uint32_t i = 0; i < 128; ++i) CHECK(run.out[256 + i] == i);
  CHECK(run.out[256 + 128] == 0);
  CHECK_THROWS_WITH_AS(PtxRun{}(body("")), doctest::Contains("without a fence"), DeviceError);
}

TEST_CASE("emulator: a bulk copy goes to the shared memory of another CTA of the cluster") {
  PtxRun run;
  run.ctas = run.cluster = 2;
  run.threads = 32;
  run(kBegin + R"(
mov.u32 %r3, %cluster_ctarank;
shl.b32 %r8, %r0, 2;
add.u32 %r9, %r1, %r8;
shl.b32 %r11, %r3, 8;
add.u32 %r10, %r0, %r11;
st.shared.u32 [%r9+1024], %r10;
fence.proxy.async;
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 128;
barrier.cluster.arrive;
barrier.cluster.wait;
xor.b32 %r4, %r3, 1;
mapa.shared::cluster.u32 %r5, %r1, %r4;
mapa.shared::cluster.u32 %r6, %r2, %r4;
add.u32 %r7, %r1, 1024;
@%p0 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5], [%r7], 128, [%r6];
)" + kAwait +
      R"(
ld.shared.u32 %r10, [%r9];
shl.b32 %r11, %r3, 7;
add.u32 %r8, %r8, %r11;
cvt.u64.u32 %rd1, %r8;
add.s64 %rd1, %rd0, %rd1;
st.global.u32 [%rd1], %r10;
barrier.cluster.arrive;
barrier.cluster.wait;
)");
  for (std::uint32_t i = 0; i < 32; ++i) {
    CHECK(run.out[i] == 256 + i);  // CTA 0 has what CTA 1 sent
    CHECK(run.out[32 + i] == i);
  }
}

TEST_CASE("emulator: bulk copies that are not of whole chunks, or leave an allocation, are named") {
  const auto said = [](const std::string& load, const char* words) {
    PtxRun run;
    run.out_bytes = 256;
    CHECK_THROWS_WITH_AS(run(kBegin + kExpect + load + kAwait), doctest::Contains(words), DeviceError);
  };
  said(kLoad, "'out' of 256 bytes");
  said("@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 24, [%r2];\n",
       "multiples of 16");
  said("@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0+8], 16, [%r2];\n",
       "multiples of 16");
}

TEST_CASE("emulator: an mbarrier awaits the copies that threads issued before they arrived by them") {
  // All 128 threads copy 4 bytes and arrive; .noinc arrivals are among those that the barrier counts.
  const auto body = [](const std::string& arrival, const char* arrivals, bool waits) {
    const std::string await = waits ? kAwait : "";
    return "mov.u32 %r2, barrier;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 mbarrier.init.shared.b64 [%r2], " +
           std::string(arrivals) + ";\nbar.sync 0;\n" + R"(
shl.b32 %r8, %r0, 2;
add.u32 %r9, %r1, %r8;
cvt.u64.u32 %rd1, %r8;
add.s64 %rd2, %rd0, %rd1;
cp.async.ca.shared.global [%r9], [%rd2], 4;
)" + arrival +
           await +
           R"(
sub.u32 %r12, 127, %r0;
shl.b32 %r12, %r12, 2;
add.u32 %r12, %r1, %r12;
ld.shared.u32 %r10, [%r12];
st.global.u32 [%rd2+4096], %r10;
)" + (waits ? "" : kAwait);
  };
  const std::string counted = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r2];\n";
  const std::string besides =
      "cp.async.mbarrier.arrive.shared.b64 [%r2];\nmbarrier.arrive.shared.b64 _, [%r2];\n";
  for (const std::string& arrival : {counted, besides}) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      CAPTURE(arrival);
      PtxRun run;
      fill(run);
      run.options.seed = seed;
      run.options.races = true;
      CHECK(run(body(arrival, "128", true)).races.empty());
      for (std::uint32_t i = 0; i < 128; ++i) CHECK(run.out[1024 + i] == 7 * (127 - i));
    }
    PtxRun impatient;
    impatient.options.races = true;
    CHECK_FALSE(impatient(body(arrival, "128", false)).races.empty());
  }
  CHECK_THROWS_WITH_AS(PtxRun{}(body(counted, "129", true)), doctest::Contains("deadlock"), DeviceError);
}

}  // namespace tilescope::gpu::emulator::bulk_ptx_test
