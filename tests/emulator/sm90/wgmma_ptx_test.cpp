// SPDX-License-Identifier: Apache-2.0
// Products as PTX, and what an emulated device makes of those that break a rule.
#include <doctest/doctest.h>

#include <bit>
#include <string>

#include "tests/emulator/sm90/run_ptx.hpp"

namespace tilescope::gpu::emulator::wgmma_ptx_test {

using testing::PtxRun;

/// A (64 x 16) and B (8 x 16) of ones in fp16, and their descriptors in %rd1 and %rd2.
const std::string kOperands = R"(
mad.lo.u32 %r2, %r0, 4, %r1;
mov.u32 %r3, 0x3C003C00;
mov.u32 %r4, 0;
fill:
st.shared.u32 [%r2], %r3;
add.u32 %r2, %r2, 512;
add.u32 %r4, %r4, 1;
setp.lt.u32 %p0, %r4, 5;
@%p0 bra fill;
)";
const std::string kFence = "fence.proxy.async.shared::cta;\n";
const std::string kDescribe = R"(
bar.sync 0;
shr.u32 %r5, %r1, 4;
add.u32 %r6, %r5, 128;
or.b32 %r5, %r5, 0x400000;
or.b32 %r6, %r6, 0x080000;
mov.u32 %r7, 8;
mov.b64 %rd1, {%r5, %r7};
mov.b64 %rd2, {%r6, %r7};
)";
const std::string kProduct = R"(
wgmma.fence.sync.aligned;
setp.ne.b32 %p1, 0, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %p1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
)";
const std::string kWait = "wgmma.wait_group.sync.aligned 0;\n";
const std::string kStore = R"(
mul.wide.u32 %rd3, %r0, 16;
add.s64 %rd3, %rd0, %rd3;
st.global.v4.f32 [%rd3], {%f0, %f1, %f2, %f3};
)";

/// How many of the 64 x 8 results are `expected`.
int count_results(const PtxRun& run, float expected) {
  int count = 0;
  for (int i = 0; i < 512; ++i)
    count += std::bit_cast<float>(run.out[static_cast<std::size_t>(i)]) == expected;
  return count;
}

TEST_CASE("emulator: a product, fenced and awaited") {
  PtxRun run;
  run(kOperands + kFence + kDescribe + kProduct + kWait + kStore);
  CHECK(count_results(run, 16.0f) == 512);
  run(kOperands + kFence + kDescribe +
      "mov.f32 %f0, 0f3F800000;\nmov.f32 %f1, %f0;\nmov.f32 %f2, %f0;\nmov.f32 %f3, %f0;\n"
      "setp.eq.b32 %p1, 0, 0;\nwgmma.fence.sync.aligned;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %p1, -1, 1, 0, "
      "0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %p1, 1, 1, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %p1, -1, 1, 0, "
      "0;\n"
      "wgmma.commit_group.sync.aligned;\n" +
      kWait + kStore);
  CHECK(count_results(run, -15.0f) == 512);
}

TEST_CASE("emulator: the left operand from registers") {
  PtxRun run;
  run(kOperands + kFence + kDescribe + R"(
mov.u32 %r10, 0x40003C00;
wgmma.fence.sync.aligned;
setp.ne.b32 %p1, 0, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%r10, %r10, %r10, %r10}, %rd2, %p1, 1, 1, 0;
wgmma.commit_group.sync.aligned;
)" + kWait +
      kStore);
  CHECK(count_results(run, 24.0f) == 512);
}

TEST_CASE("emulator: a result is no number until it is awaited") {
  PtxRun run;
  run(kOperands + kFence + kDescribe + kProduct + kStore + kWait);
  for (int i = 0; i < 512; ++i) {
    const auto x = std::bit_cast<float>(run.out[static_cast<std::size_t>(i)]);
    REQUIRE(x != x);
  }
}

TEST_CASE("emulator: a copy of a result under way is the result too") {
  PtxRun run;
  run(kOperands + kFence + kDescribe + kProduct + "mov.b32 %r20, %f0;\nmov.u32 %r21, %r20;\n" + kWait +
      "mov.b32 %f0, %r21;\n" + kStore);
  CHECK(count_results(run, 16.0f) == 512);
}

TEST_CASE("emulator: a register that is written while its product is under way is an error") {
  CHECK_THROWS_WITH_AS(
      PtxRun()(kOperands + kFence + kDescribe + kProduct + "mov.f32 %f1, 0f00000000;\n" + kWait + kStore),
      doctest::Contains("a register of products under way was written"), DeviceError);
}

TEST_CASE("emulator: products do not see stores without a fence") {
  CHECK_THROWS_WITH_AS(PtxRun()(kOperands + kDescribe + kProduct + kWait + kStore),
                       doctest::Contains("is read by the async proxy without a fence"), DeviceError);
  // The fence of the thread that issues counts too.
  PtxRun run;
  run(kOperands + "bar.sync 0;\n" + kFence + kDescribe + kProduct + kWait + kStore);
  CHECK(count_results(run, 16.0f) == 512);
}

TEST_CASE("emulator: operands are read some time until the wait") {
  const std::string begin = kOperands + kFence + kDescribe + kProduct;
  const std::string overwrite = "mov.u32 %r8, 0;\nst.shared.u32 [%r1+2048], %r8;\n";
  int kept = 0, lost = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    PtxRun run;
    run.options.seed = seed;
    run(begin + "bar.sync 0;\n" + overwrite + kWait + kStore);
    kept += count_results(run, 16.0f);
    lost += 512 - count_results(run, 16.0f);
  }
  CHECK(kept > 0);
  CHECK(lost > 0);
  // By happens-before, in every run. The barrier is of all warps, whose products share B.
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    PtxRun run;
    run.options.seed = seed;
    run.options.races = true;
    const std::string one_thread =
        "bar.sync 0;\nsetp.ne.u32 %p2, %r0, 0;\n@%p2 bra skip;\n" + overwrite + "skip:\n";
    CHECK_FALSE(run(begin + one_thread + kWait + kStore).races.empty());
    CHECK(run(begin + kWait + one_thread + kStore).races.empty());
  }
}

TEST_CASE("emulator: a CTA that ends without a wait for its products is an error") {
  CHECK_THROWS_AS(
      [] {
        for (std::uint64_t seed = 1; seed <= 16; ++seed) {
          PtxRun run;
          run.options.seed = seed;
          run(kOperands + kFence + kDescribe + kProduct);
        }
      }(),
      DeviceError);
}

/// What a run of `product` is refused with.
std::string refusal_of(const std::string& product, unsigned threads = 128,
                       const std::string& descriptor = "") {
  PtxRun run;
  run.threads = threads;
  try {
    run(kOperands + kFence + kDescribe + descriptor + "setp.ne.b32 %p1, 0, 0;\nwgmma.fence.sync.aligned;\n" +
        product + "wgmma.commit_group.sync.aligned;\n" + kWait);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}
std::string product(const std::string& shape, const std::string& operands) {
  return "wgmma.mma_async.sync.aligned." + shape + ".f32.f16.f16 " + operands + ";\n";
}
const std::string kRightOperands = "{%f0, %f1, %f2, %f3}, %rd1, %rd2, %p1, 1, 1, 0, 0";

TEST_CASE("emulator: products whose operands are not those of their shape are refused") {
  CHECK(refusal_of(product("m64n8k16", kRightOperands)).empty());
  for (const char* shape : {"m64n256k16", "m64n8k32", "m64n12k16"}) {
    CAPTURE(shape);
    CHECK(refusal_of(product(shape, kRightOperands)).find("registers are not those of the shape") !=
          std::string::npos);
  }
  for (const char* operands :
       {"{%f0, %f1, %f2}, %rd1, %rd2, %p1, 1, 1, 0, 0", "{%f0, %f1, %f2, %rd3}, %rd1, %rd2, %p1, 1, 1, 0, 0",
        "{%f0, %f1, %f2, %f3}, %r1, %rd2, %p1, 1, 1, 0, 0",
        "{%f0, %f1, %f2, %f3}, {%r1, %r2}, %rd2, %p1, 1, 1, 0",
        "{%f0, %f1, %f2, %f3}, %rd1, %r2, %p1, 1, 1, 0, 0",
        "{%f0, %f1, %f2, %f3}, %rd1, %rd2, %r1, 1, 1, 0, 0",
        "{%f0, %f1, %f2, %f3}, %rd1, %rd2, %p1, 1, %r1, 0, 0", "{%f0, %f1, %f2, %f3}, %rd1, %rd2"}) {
    CAPTURE(operands);
    CHECK(!refusal_of(product("m64n8k16", operands)).empty());
  }
}

TEST_CASE("emulator: products of fewer threads than a warpgroup are refused") {
  for (const unsigned threads : {32u, 96u, 127u, 160u}) {
    CAPTURE(threads);
    CHECK(refusal_of(product("m64n8k16", kRightOperands), threads).find("are not there") !=
          std::string::npos);
  }
}

TEST_CASE("emulator: a descriptor that leads beyond shared memory is refused, whatever its bits") {
  int refused = 0;
  std::uint64_t word = 0x9E3779B97F4A7C15;
  for (int i = 0; i < 200; ++i) {
    word = word * 6364136223846793005u + 1442695040888963407u;
    const std::string garbage = "mov.b64 %rd2, " + std::to_string(word >> 1) + ";\n";
    refused += !refusal_of(product("m64n8k16", kRightOperands), 128, garbage).empty();
  }
  CHECK(refused > 150);
}

}  // namespace tilescope::gpu::emulator::wgmma_ptx_test
