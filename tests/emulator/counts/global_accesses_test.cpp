// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/global_accesses.hpp"

#include <doctest/doctest.h>

#include <memory>

#include "tests/emulator/counts/add_kernel.hpp"

namespace tilescope::gpu::emulator::global_accesses_test {

using testing::CalledKernel;
using testing::copy_body;
using testing::findings;
using testing::kernel_ptx;

TEST_CASE("emulator: CTAs that write other values to one place race, whatever the number of threads") {
  // All CTAs store to the first 128 numbers; of the second kernel the same value.
  const auto body = [](const std::string& value) {
    return kernel_ptx("mul.wide.s32 %rd3, %r3, 4;\nadd.s64 %rd5, %rd2, %rd3;\ncvt.rn.f32.s32 %f1, " + value +
                      ";\n.loc 1 12 1\nst.global.f32 [%rd5], %f1;\n");
  };
  for (const int threads : {1, 3}) {
    const auto kernel = std::make_unique<CalledKernel>();
    kernel->call.options.threads = threads;
    kernel->call.options.races = true;
    const auto found = findings((*kernel)(body("%r4")), FindingKind::race);
    REQUIRE(found.size() == 1);
    CHECK(found[0].lines.at(0).text() == "kernel.cu:12");
    CHECK(found[0].text.find("y, 0 B from its beginning: CTA 0 writes at PTX line ") == 0);
    CHECK(found[0].text.find(", CTA 7 writes at PTX line ") != std::string::npos);
    CHECK(findings((*kernel)(body("%r3")), FindingKind::race).empty());
  }
}

TEST_CASE("emulator: a read of what another CTA writes races, unless a fence may order them") {
  const auto reads_of_the_next = [](const std::string& fence) {
    return kernel_ptx(
        "mul.wide.s32 %rd3, %r4, 4;\nadd.s64 %rd5, %rd2, %rd3;\n.loc 1 12 1\nst.global.f32 [%rd5], "
        "%f1;\n" +
        fence + ".loc 1 13 1\nld.global.f32 %f2, [%rd5+512];\n");
  };
  const auto kernel = std::make_unique<CalledKernel>();
  kernel->call.options.races = true;
  const auto found = findings((*kernel)(reads_of_the_next("")), FindingKind::race);
  REQUIRE(found.size() == 1);
  CHECK(found[0].lines.at(0).text() == "kernel.cu:12");
  CHECK(found[0].lines.at(1).text() == "kernel.cu:13");
  const KernelResult fenced = (*kernel)(reads_of_the_next("membar.gl;\n"));
  CHECK(findings(fenced, FindingKind::race).empty());
  CHECK(fenced.counts.notes.back().starts_with(
      "races between CTAs in global memory were not looked for: the kernel"));
  // Its own numbers, and those of a CTA of its cluster, whose barriers order the two.
  CHECK(findings((*kernel)(kernel_ptx(copy_body(1))), FindingKind::race).empty());
  kernel->call.cluster = {8};
  CHECK(findings((*kernel)(reads_of_the_next("")), FindingKind::race).empty());
}

TEST_CASE("emulator: that a cluster has more threads than races are looked for among is said") {
  const auto kernel = std::make_unique<CalledKernel>();
  kernel->call.options.races = true;
  kernel->call.cluster = {8};
  const auto is_said = [](const KernelResult& result) {
    return std::any_of(result.counts.notes.begin(), result.counts.notes.end(), [](const std::string& note) {
      return note == "races in shared memory were not looked for: a cluster of more than 2048 threads";
    });
  };
  CHECK_FALSE(is_said((*kernel)(kernel_ptx(""))));
  kernel->call.block = {512};
  CHECK(is_said((*kernel)(kernel_ptx(""))));
}

TEST_CASE("emulator: atomics race with plain stores, not with each other") {
  const auto counting = [](const std::string& before) {
    return kernel_ptx("mov.f32 %f1, 0f3F800000;\n.loc 1 12 1\n" + before +
                      ".loc 1 13 1\nred.relaxed.gpu.global.add.f32 [%rd2], %f1;\n");
  };
  const auto kernel = std::make_unique<CalledKernel>();
  kernel->call.options.races = true;
  CHECK(findings((*kernel)(counting("")), FindingKind::race).empty());
  const auto found = findings((*kernel)(counting("st.global.f32 [%rd2], %f3;\n")), FindingKind::race);
  REQUIRE(found.size() == 1);
  CHECK(found[0].lines.at(0).text() == "kernel.cu:12");
  CHECK(found[0].lines.at(1).text() == "kernel.cu:13");
}

TEST_CASE("emulator: neighbours in bytes of one word do not race") {
  const auto kernel = std::make_unique<CalledKernel>();
  kernel->call.options.races = true;
  kernel->call.block = {1};
  const auto found = findings((*kernel)(kernel_ptx("cvt.s64.s32 %rd3, %r4;\nadd.s64 %rd5, %rd2, %rd3;\n"
                                                   "st.global.u8 [%rd5], %r4;\n")),
                              FindingKind::race);
  CHECK(found.empty());
}

TEST_CASE("emulator: a read of global memory that nobody wrote is named where the buffer is said to be so") {
  const auto kernel = std::make_unique<CalledKernel>();
  kernel->call.options.races = true;
  for (const bool uninitialised : {false, true}) {
    kernel->uninitialised = uninitialised;
    const auto found = findings((*kernel)(kernel_ptx(copy_body(1))), FindingKind::uninitialised);
    CHECK(found.size() == (uninitialised ? 1 : 0));
    if (uninitialised) CHECK(found.at(0).lines.at(0).text() == "kernel.cu:11");
  }
}

}  // namespace tilescope::gpu::emulator::global_accesses_test
