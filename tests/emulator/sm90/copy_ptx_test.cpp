// SPDX-License-Identifier: Apache-2.0
// Copies, mbarriers and clusters as PTX, and what an emulated device makes of those that break a rule.
#include <doctest/doctest.h>

#include <numeric>

#include "emulator/sm90/tensor_map.hpp"
#include "tests/emulator/sm90/run_ptx.hpp"

namespace tilescope::gpu::emulator::copy_ptx_test {

/// `out` holds, from word 1024 on, the map of the 32 x 32 fp32 matrix that stands from word 2048 on, in boxes
/// of 8 rows x 32 columns: 1024 bytes.
struct MatrixRun : testing::PtxRun {
  MatrixRun() {
    threads = 32;
    std::iota(out.begin() + 2048, out.begin() + 3072, 1u);
    encode();
  }
  std::uint32_t* map() { return out.data() + 1024; }
  void encode() {
    const std::uint64_t extent[] = {32, 32}, strides[] = {128};
    const std::uint32_t box[] = {32, 8}, steps[] = {1, 1};
    REQUIRE(encode_tensor_map(map(), {7, 2, reinterpret_cast<std::uint64_t>(out.data() + 2048), extent,
                                      strides, box, steps, 0, 0, 0, 0}) == 0);
  }
};

const std::string kBegin = R"(
add.s64 %rd1, %rd0, 4096;
mov.u32 %r2, barrier;
setp.eq.u32 %p0, %r0, 0;
)";
const std::string kInit = R"(
@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;
@%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
)";
const std::string kExpect = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 1024;\n";
/// From row 4.
const std::string kLoad = R"(
mov.u32 %r3, 0;
mov.u32 %r4, 4;
@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r3, %r4}], [%r2];
)";
const std::string kWait = R"(
again:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
@!%p1 bra again;
)";
/// The first row of shared memory.
const std::string kStore = R"(
shl.b32 %r5, %r0, 2;
add.u32 %r6, %r1, %r5;
ld.shared.u32 %r7, [%r6];
cvt.u64.u32 %rd2, %r5;
add.s64 %rd2, %rd0, %rd2;
st.global.u32 [%rd2], %r7;
)";

TEST_CASE("emulator: a box is there when its barrier says so") {
  MatrixRun run;
  run.options.races = true;
  CHECK(run(kBegin + kInit + kExpect + kLoad + kWait + kStore).races.empty());
  for (std::uint32_t i = 0; i < 32; ++i) CHECK(run.out[i] == 4 * 32 + i + 1);
}

TEST_CASE("emulator: a box that is not awaited is not always there") {
  int there = 0, not_there = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    MatrixRun run;
    run.options.seed = seed;
    run.options.races = true;
    const std::vector<Race> races = run(kBegin + kInit + kExpect + kLoad + kStore + kWait).races;
    (run.out[0] == 129 ? there : not_there) += 1;
    CHECK(races.size() == 1);
  }
  CHECK(not_there > 0);
}

TEST_CASE("emulator: where one lane arrives for a warp, its lanes must have met") {
  for (const bool met : {false, true}) {
    MatrixRun run;
    run.threads = 64;
    run.options.races = true;
    const std::string readers = std::string("ld.shared.u32 %r6, [%r5];\n") +
                                (met ? "bar.warp.sync 0xffffffff;\n" : "") +
                                "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r2];\nret;\n";
    const auto races = run(kBegin + kInit + R"(
and.b32 %r4, %r0, 31;
shl.b32 %r5, %r4, 2;
add.u32 %r5, %r1, %r5;
setp.ge.u32 %p2, %r0, 32;
@%p2 bra writer;
)" + readers + "writer:\n" +
                           kWait + "st.shared.u32 [%r5], %r0;\n")
                           .races;
    CHECK(races.empty() == met);
  }
}

TEST_CASE("emulator: a barrier that awaits other bytes than come is a deadlock or an error") {
  const std::string less = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512;\n";
  MatrixRun run;
  run.options.step_limit = 100000;
  CHECK_THROWS_AS(run(kBegin + kInit + less + kLoad + kWait + kStore), DeviceError);
}

TEST_CASE("emulator: mbarriers that are used wrongly are errors with their place") {
  const auto fails = [](const std::string& body, const char* what) {
    MatrixRun run;
    CHECK_THROWS_WITH_AS(run(kBegin + body), doctest::Contains(what), DeviceError);
  };
  fails("mbarrier.arrive.shared::cta.b64 _, [%r2];\n", "was not initialised");
  fails(kInit + "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n", "initialised while it lives");
  fails(kInit + "mbarrier.arrive.shared::cta.b64 _, [%r2];\nmbarrier.arrive.shared::cta.b64 _, [%r2], 2;\n",
        "more arrivals");
  fails(kInit + "@%p0 mbarrier.inval.shared::cta.b64 [%r2];\nmbarrier.arrive.shared::cta.b64 _, [%r2];\n",
        "was not initialised");
  fails(kInit + "add.u32 %r2, %r2, 4;\n@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n",
        "(byte 4 of barrier) is not aligned to 8 bytes");
}

TEST_CASE("emulator: copies do not see a barrier whose initialisation no fence followed") {
  MatrixRun run;
  CHECK_THROWS_WITH_AS(
      run(kBegin + "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\nbar.sync 0;\n" + kExpect + kLoad),
      doctest::Contains("is counted at by the async proxy without a fence"), DeviceError);
}

TEST_CASE("emulator: copies by what is no map, or to places that are not aligned, are errors") {
  MatrixRun run;
  CHECK_THROWS_WITH_AS(run(kBegin + kInit + "add.s64 %rd1, %rd1, 64;\n" + kLoad),
                       doctest::Contains("no tensor map"), DeviceError);
  CHECK_THROWS_WITH_AS(run(kBegin + kInit + "add.u32 %r1, %r1, 64;\n" + kLoad), doctest::Contains("aligned"),
                       DeviceError);
}

/// Fills the box with the thread's number + 1000, a row of 32 words after the other.
const std::string kFill = R"(
shl.b32 %r8, %r0, 2;
add.u32 %r9, %r1, %r8;
add.u32 %r10, %r0, 1000;
st.shared.u32 [%r9], %r10;
st.shared.u32 [%r9+128], %r10;
st.shared.u32 [%r9+256], %r10;
st.shared.u32 [%r9+384], %r10;
st.shared.u32 [%r9+512], %r10;
st.shared.u32 [%r9+640], %r10;
st.shared.u32 [%r9+768], %r10;
st.shared.u32 [%r9+896], %r10;
)";
const std::string kFence = "fence.proxy.async.shared::cta;\nbar.warp.sync 0xffffffff;\n";
const std::string kPut = R"(
mov.u32 %r3, 0;
mov.u32 %r4, 28;
@%p0 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r3, %r4}], [%r1];
@%p0 cp.async.bulk.commit_group;
)";
const std::string kRead = "@%p0 cp.async.bulk.wait_group.read 0;\nbar.warp.sync 0xffffffff;\n";
const std::string kScratch = "st.shared.u32 [%r9], %r8;\n";

TEST_CASE("emulator: stores leave out what lies outside, and are done when their group is") {
  MatrixRun run;
  run.options.races = true;
  CHECK(run(kBegin + kFill + kFence + kPut + kRead + kScratch).races.empty());
  for (std::uint32_t i = 0; i < 4 * 32; ++i) CHECK(run.out[2048 + 28 * 32 + i] == 1000 + i % 32);
  CHECK(run.out[2048 + 28 * 32 - 1] == 28 * 32);
  CHECK(run.out[3072] == 0);
}

TEST_CASE("emulator: a store without a fence, or without a wait before its place is used again") {
  MatrixRun unfenced;
  CHECK_THROWS_WITH_AS(unfenced(kBegin + kFill + "bar.warp.sync 0xffffffff;\n" + kPut + kRead),
                       doctest::Contains("is read by the async proxy without a fence"), DeviceError);
  int lost = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    MatrixRun run;
    run.options.seed = seed;
    run.options.races = true;
    CHECK_FALSE(run(kBegin + kFill + kFence + kPut + kScratch + kRead).races.empty());
    lost += run.out[2048 + 28 * 32] != 1000;
  }
  CHECK(lost > 0);
  MatrixRun left;
  left.options.seed = 3;
  int errors = 0;
  for (left.options.seed = 1; left.options.seed <= 16; ++left.options.seed) {
    try {
      left(kBegin + kFill + kFence + kPut);
    } catch (const DeviceError&) {
      ++errors;
    }
  }
  CHECK(errors > 0);
}

TEST_CASE("emulator: a store that has read has not always written") {
  const std::string look = R"(
ld.global.u32 %r11, [%rd0+11776];
st.global.u32 [%rd0], %r11;
)";  // word 2048 + 28 * 32
  int old = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    MatrixRun run;
    run.options.seed = seed;
    run(kBegin + kFill + kFence + kPut + kRead + look);
    old += run.out[0] != 1000;
    MatrixRun awaited;
    awaited.options.seed = seed;
    awaited(kBegin + kFill + kFence + kPut + "@%p0 cp.async.bulk.wait_group 0;\nbar.warp.sync 0xffffffff;\n" +
            look);
    CHECK(awaited.out[0] == 1000);
  }
  CHECK(old > 0);
}

TEST_CASE("emulator: boxes and runs are added") {
  MatrixRun run;
  for (std::size_t i = 2048; i < 3072; ++i) run.out[i] = 0x3F800000;  // 1.0f
  const std::string ones = R"(
mov.u32 %r10, 0x40000000;
shl.b32 %r8, %r0, 2;
add.u32 %r9, %r1, %r8;
st.shared.u32 [%r9], %r10;
st.shared.u32 [%r9+128], %r10;
)";
  run(kBegin + ones + kFence + R"(
add.s64 %rd2, %rd0, 8192;
mov.u32 %r3, 0;
@%p0 cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%rd1, {%r3, %r3}], [%r1];
@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd2], [%r1], 128;
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group 0;
)");
  CHECK(run.out[2048] == 0x40A00000);           // 5.0f
  CHECK(run.out[2048 + 32] == 0x40400000);      // 3.0f
  CHECK(run.out[2048 + 8 * 32] == 0x3F800000);  // beyond the box
}

TEST_CASE("emulator: a store takes the cluster's address of its own CTA, and none of another") {
  for (const bool own : {true, false}) {
    MatrixRun run;
    run.ctas = run.cluster = 2;
    const auto store = [&] {
      run(kBegin + "mov.u32 %r3, %cluster_ctarank;\n" + (own ? "" : "xor.b32 %r3, %r3, 1;\n") + R"(
mapa.shared::cluster.u32 %r4, %r1, %r3;
st.shared.u32 [%r1], 0x3F800000;
)" + kFence +
          R"(
add.s64 %rd2, %rd0, 8192;
@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd2], [%r4], 16;
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group 0;
)");
    };
    if (own) {
      store();
      CHECK(run.out[2048] == 0x40000000);  // 1.0f of each CTA
    } else {
      CHECK_THROWS_WITH_AS(store(), doctest::Contains("out of another CTA"), DeviceError);
    }
  }
}

TEST_CASE("emulator: a pair of CTAs: boxes to both, arrivals at the other's barrier") {
  MatrixRun run;
  run.ctas = run.cluster = 2;
  run(kBegin + R"(
mov.u32 %r20, %cluster_ctarank;
@%p0 mbarrier.init.shared::cta.b64 [%r2], 2;
@%p0 fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
mov.u32 %r3, 0;
mov.u32 %r4, 4;
mov.u16 %h1, 3;
setp.eq.u32 %p2, %r20, 0;
and.pred %p3, %p0, %p2;
)" + kExpect +
      R"(
@%p3 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd1, {%r3, %r4}], [%r2], %h1;
xor.b32 %r21, %r20, 1;
mapa.shared::cluster.u32 %r22, %r2, %r21;
@%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r22];
)" + kWait +
      R"(
mul.wide.u32 %rd5, %r20, 128;
add.s64 %rd0, %rd0, %rd5;
)" + kStore +
      R"(
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
)");
  for (std::uint32_t i = 0; i < 64; ++i) CHECK(run.out[i] == 129 + i % 32);
}

TEST_CASE("emulator: warpgroups have no more registers than an SM") {
  testing::PtxRun run;
  run.threads = 384;
  run.options.step_limit = 100000;
  const auto with = [](const char* taken) {
    return std::string(R"(
setp.lt.u32 %p0, %r0, 128;
@%p0 bra producer;
setmaxnreg.inc.sync.aligned.u32 )") +
           taken + R"(;
ret;
producer:
setmaxnreg.dec.sync.aligned.u32 24;
)";
  };
  run(with("240"));
  CHECK_THROWS_AS(run(with("248")), DeviceError);
  CHECK_THROWS_WITH_AS(run(with("250")), doctest::Contains("multiples of 8"), DeviceError);
}

}  // namespace tilescope::gpu::emulator::copy_ptx_test
