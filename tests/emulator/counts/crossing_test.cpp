// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/crossing.hpp"

#include <doctest/doctest.h>

#include <memory>

#include "tests/emulator/counts/add_kernel.hpp"

namespace tilescope::gpu::emulator::crossing_test {

using testing::CalledKernel;
using testing::kernel_ptx;
using testing::line;

TEST_CASE("emulator: the CTAs of an SM share its L1") {
  // Each CTA loads the same 512 bytes.
  const std::string ptx = kernel_ptx(
      "mul.wide.s32 %rd3, %r3, 4;\nadd.s64 %rd4, %rd1, %rd3;\n.loc 1 11 1\nld.global.f32 %f1, [%rd4];\n");
  for (const auto& [ctas, fetching] : {std::pair(100u, 100u), {132u, 132u}, {500u, 132u}}) {
    const auto kernel = std::make_unique<CalledKernel>();
    kernel->call.grid = {ctas};
    const KernelResult result = (*kernel)(ptx);
    CHECK(result.counts.metrics.at("sm_l2_read_bytes") == fetching * 512);
    CHECK(line(result, 11).l1_hit_bytes == (ctas - fetching) * 512);
    CHECK(result.counts.least_read_bytes == 512);
  }
}

TEST_CASE("emulator: cp.async.cg fetches a sector for each block of shared memory that it lands in") {
  for (const auto& [begin, sectors] : {std::pair(0, 2), {16, 4}}) {
    const auto kernel = std::make_unique<CalledKernel>();
    kernel->call.grid = {1};
    kernel->call.block = {4};
    const KernelResult result = (*kernel)(
        kernel_ptx("mul.wide.s32 %rd3, %r3, 16;\nadd.s64 %rd4, %rd1, %rd3;\nmov.u32 %r5, tile;\n"
                   "shl.b32 %r7, %r3, 4;\nadd.u32 %r6, %r5, %r7;\ncp.async.cg.shared.global [%r6], [%rd4+" +
                       std::to_string(begin) + "], 16;\ncp.async.wait_all;\n",
                   ".shared .align 32 .b8 tile[512];\n"));
    CHECK(result.counts.metrics.at("sm_l2_read_bytes") == sectors * 32);
  }
}

TEST_CASE("emulator: rows of boxes cross by the sectors of their data and of their zeros") {
  CHECK(sectors_of_row(0, 128, 128) == 4);
  CHECK(sectors_of_row(16, 128, 128) == 5);
  CHECK(sectors_of_row(16, 64, 64) == 3);
  CHECK(sectors_of_row(0, 80, 128) == 3 + 2);
  CHECK(sectors_of_row(16, 80, 128) == 3 + 2);
  CHECK(sectors_of_row(16, 16, 128) == 1 + 4);
  CHECK(sectors_of_row(16, 0, 128) == 4);
}

}  // namespace tilescope::gpu::emulator::crossing_test
