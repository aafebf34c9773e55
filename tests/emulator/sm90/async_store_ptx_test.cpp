// SPDX-License-Identifier: Apache-2.0
// Asynchronous stores and reductions of registers, and reductions of runs of bytes.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/emulator/sm90/run_ptx.hpp"

namespace tilescope::gpu::emulator::async_store_test {

using testing::PtxRun;

/// Each of 32 threads of two CTAs sends `send`, whose address is %rd3 in the other's tile and whose barrier
/// is %rd4, waits for 128 bytes, and shows what lies in its own tile at word 64 of `out` and on.
std::string between_two(const std::string& send, const std::string& wait) {
  return R"(
mov.u32 %r2, barrier;
setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared.b64 [%r2], 1;
shl.b32 %r8, %r0, 2;
add.u32 %r9, %r1, %r8;
st.shared.u32 [%r9], 5;
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 128;
barrier.cluster.arrive;
barrier.cluster.wait;
mov.u32 %r3, %cluster_ctarank;
xor.b32 %r4, %r3, 1;
cvt.u64.u32 %rd1, %r9;
cvta.shared.u64 %rd1, %rd1;
mapa.u64 %rd3, %rd1, %r4;
getctarank.u64 %r14, %rd3;
mapa.shared::cluster.u32 %r5, %r9, %r4;
mapa.shared::cluster.u32 %r6, %r2, %r4;
)" + send +
         wait + R"(
ld.shared.u32 %r11, [%r9];
shl.b32 %r12, %r3, 7;
add.u32 %r12, %r12, %r8;
cvt.u64.u32 %rd2, %r12;
add.s64 %rd2, %rd0, %rd2;
st.global.u32 [%rd2], %r11;
st.global.u32 [%rd2+256], %r14;
barrier.cluster.arrive;
barrier.cluster.wait;
)";
}
const std::string kWait = R"(
WAIT:
mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0;
@!%p1 bra WAIT;
)";
const std::string kStore =
    "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r5], %r0, [%r6];\n";

PtxRun pair(std::uint64_t seed = 1) {
  PtxRun run;
  run.ctas = run.cluster = 2;
  run.threads = 32;
  run.options.seed = seed;
  return run;
}

TEST_CASE("emulator: asynchronous stores are there when their barrier says so, and not always before") {
  int early = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    PtxRun run = pair(seed);
    run(between_two(kStore, kWait));
    for (std::uint32_t i = 0; i < 64; ++i) CHECK(run.out[i] == i % 32);
    for (std::uint32_t i = 0; i < 64; ++i) CHECK(run.out[64 + i] == (i < 32 ? 1 : 0));  // whose the place is
    PtxRun impatient = pair(seed);
    impatient(between_two(kStore, "") + kWait);
    for (std::uint32_t i = 0; i < 64; ++i) early += impatient.out[i] == 5;
  }
  CHECK(early > 0);
}

TEST_CASE("emulator: asynchronous reductions take what is there") {
  const auto reduced = [](const std::string& kind, const std::string& value) {
    PtxRun run = pair();
    run(between_two("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes." + kind +
                        " [%r5], " + value + ", [%r6];\n",
                    kWait));
    return run.out;
  };
  const auto sums = reduced("add.u32", "%r0"), least = reduced("min.s32", "-3"),
             bits = reduced("xor.b32", "%r0");
  for (std::uint32_t i = 0; i < 32; ++i) {
    CHECK(sums[i] == 5 + i);
    CHECK(least[i] == static_cast<std::uint32_t>(-3));
    CHECK(bits[i] == (5 ^ i));
  }
}

TEST_CASE("emulator: asynchronous stores that cannot be are named") {
  const auto fails = [](const std::string& send, const char* words) {
    PtxRun run = pair();
    CHECK_THROWS_WITH_AS(run(between_two(send, kWait)), doctest::Contains(words), DeviceError);
  };
  fails("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r5], %r0, [%r2];\n",
        "counted in another");
  fails("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r5+2], %r0, [%r6];\n",
        "not aligned to 4 bytes");
  fails("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r5], %r0, [%r6+8];\n",
        "was not initialised");
  fails("@%p0 " + kStore, "deadlock");
}

TEST_CASE("emulator: runs of bytes are reduced in global memory by each kind and type") {
  const auto reduced = [](const std::string& kind, std::uint32_t before) {
    PtxRun run;
    run.out.fill(before);
    run(R"(
shl.b32 %r8, %r0, 2;
add.u32 %r9, %r1, %r8;
st.shared.u32 [%r9], %r0;
fence.proxy.async;
bar.sync 0;
setp.eq.u32 %p0, %r0, 0;
@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.)" +
        kind + R"( [%rd0], [%r1], 512;
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group 0;
)");
    return run.out;
  };
  const auto sums = reduced("add.s32", 7), least = reduced("min.s32", ~0u), most = reduced("max.u32", 7),
             bits = reduced("or.b32", 8);
  for (std::uint32_t i = 0; i < 128; ++i) {
    CHECK(sums[i] == 7 + i);
    CHECK(least[i] == ~0u);
    CHECK(most[i] == std::max(7u, i));
    CHECK(bits[i] == (8 | i));
  }
}

TEST_CASE("emulator: what needs a multicast object is refused, with the reason, before anything runs") {
  for (const std::string operation :
       {"ld_reduce.relaxed.sys.global.add.f32 %f1, [%rd0]", "st.relaxed.sys.global.f32 [%rd0], %f1",
        "red.relaxed.sys.global.add.f32 [%rd0], %f1"}) {
    testing::PtxRun run;
    CHECK_THROWS_WITH_AS(run("multimem." + operation + ";\n"),
                         doctest::Contains("through a multicast object"), std::runtime_error);
  }
}

}  // namespace tilescope::gpu::emulator::async_store_test
