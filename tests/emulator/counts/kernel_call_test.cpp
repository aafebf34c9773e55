// SPDX-License-Identifier: Apache-2.0
#include "emulator/kernel_call.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>

#include "common/errors.hpp"
#include "tests/emulator/counts/add_kernel.hpp"

namespace tilescope::gpu::emulator::kernel_call_test {

using testing::CalledKernel;
using testing::copy_body;
using testing::findings;
using testing::kernel_ptx;
using testing::line;

TEST_CASE("emulator: a coalesced copy has its bytes by line, and nothing is found") {
  const auto kernel = std::make_unique<CalledKernel>();
  std::iota(kernel->x.begin(), kernel->x.end(), 0.0f);
  const KernelResult result = (*kernel)(kernel_ptx(copy_body(1)));
  CHECK(result.right());
  CHECK(result.findings.empty());
  CHECK(std::equal(kernel->x.begin(), kernel->x.begin() + 1024, kernel->y.begin()));
  CHECK(result.counts.lines.size() == 2);
  CHECK(line(result, 11).place.text() == "kernel.cu:11");
  CHECK(line(result, 11).requests == 32);
  CHECK(line(result, 11).sectors_per_request() == 4);
  CHECK(line(result, 11).read_bytes == 4096);
  CHECK(line(result, 12).write_bytes == 4096);
  CHECK(result.counts.metrics.at("sm_l2_read_bytes") == 4096);
  CHECK(result.counts.metrics.at("sm_l2_write_bytes") == 4096);
  CHECK(result.counts.must_read_bytes == 4096);
  CHECK(result.counts.must_write_bytes == 4096);
  CHECK(result.counts.notes.empty());
}

TEST_CASE("emulator: accesses that are not coalesced are named with their excess") {
  const auto kernel = std::make_unique<CalledKernel>();
  kernel->n = 512;
  const KernelResult result = (*kernel)(kernel_ptx(copy_body(8)));  // a sector each
  CHECK(line(result, 11).sectors_per_request() == 32);
  CHECK(line(result, 11).excess_bytes() == 16 * 28 * 32);
  const auto found = findings(result, FindingKind::uncoalesced);
  REQUIRE(found.size() == 2);
  CHECK(found[0].lines[0].text() == "kernel.cu:11");
  CHECK(found[0].text == "32.0 sectors a request where 4.0 suffice: 14336 of 16384 B in excess");
}

TEST_CASE("emulator: what L1 may merge of partly written sectors has both bounds") {
  const auto kernel = std::make_unique<CalledKernel>();
  kernel->n = 512;
  // Each thread stores to its eighth, then to the numbers behind it.
  const auto stored = [&](int times) {
    std::string body = copy_body(8).substr(0, copy_body(8).find("DONE:\n"));
    for (int i = 1; i < times; ++i) body += "st.global.f32 [%rd5+" + std::to_string(4 * i) + "], %f1;\n";
    return (*kernel)(kernel_ptx(body + "DONE:\n")).counts;
  };
  for (const int times : {2, 3, 4}) {
    const int left = 1;  // as if ptxas let them stand in a row
    CAPTURE(times);
    const KernelCounts counts = stored(times);
    CHECK(counts.metrics.at("sm_l2_write_bytes") == left * 512 * 32);
    CHECK(counts.metrics.at("merged_store_bytes") == (times - left) * 512 * 32);
    CHECK(counts.metrics.at("global_store_bytes") == times * 512 * 32);
    CHECK(counts.least_write_bytes == 512 * 32);
    CHECK(counts.must_write_bytes == 512 * 32);
    REQUIRE(counts.notes.size() == 1);
    const std::string bounds = "; 16384 to " + std::to_string(times * 16384) + " B are written, by timing";
    CHECK(counts.notes[0].find(bounds) != std::string::npos);
  }
}

TEST_CASE("emulator: loads hit in L1 where they allocate there, which is labelled") {
  const auto with_second_load = [](const std::string& cache) {
    std::string body = copy_body(1);
    return kernel_ptx(
        body.insert(body.find(".loc 1 12"), ".loc 1 20 1\nld.global" + cache + ".f32 %f2, [%rd4];\n"));
  };
  const auto kernel = std::make_unique<CalledKernel>();
  const KernelResult hits = (*kernel)(with_second_load(""));
  CHECK(line(hits, 20).read_bytes == 0);
  CHECK(line(hits, 20).l1_hit_bytes == 4096);
  CHECK(hits.counts.metrics.at("sm_l2_read_bytes") == 4096);
  REQUIRE(hits.counts.notes.size() == 1);
  CHECK(hits.counts.notes[0].find("modelled: loads of 4096 B hit in an L1 of 256 KiB") == 0);
  CHECK(hits.counts.notes[0].find("1 CTAs") == std::string::npos);
  CHECK(hits.counts.notes[0].find("; 4096 to 8192 B are read, by timing") != std::string::npos);
  CHECK(hits.counts.least_read_bytes == 4096);
  for (const char* past : {".cg", ".volatile"}) {
    const std::string body = past == std::string(".volatile") ? "" : past;
    if (body.empty()) continue;
    const KernelResult misses = (*kernel)(with_second_load(body));
    CHECK(line(misses, 20).read_bytes == 4096);
    CHECK(misses.counts.notes.empty());
  }
  CHECK(hits.counts.must_read_bytes == 4096);
}

TEST_CASE("emulator: atomics count both ways, those whose result nobody reads one way") {
  const auto counts = [](const std::string& atomic) {
    const auto kernel = std::make_unique<CalledKernel>();
    return (*kernel)(kernel_ptx(
                         "mul.wide.s32 %rd3, %r4, 4;\nadd.s64 %rd5, %rd2, %rd3;\nmov.f32 %f1, 0f3F800000;\n" +
                         atomic))
        .counts.metrics;
  };
  auto metrics = counts("atom.global.add.f32 %f2, [%rd5], %f1;\nst.global.f32 [%rd5], %f2;\n");
  CHECK(metrics.at("atomic_read_bytes") == 4096);
  CHECK(metrics.at("atomic_write_bytes") == 4096);
  CHECK(metrics.at("sm_l2_read_bytes") == 4096);
  CHECK(metrics.at("sm_l2_write_bytes") == 2 * 4096);
  for (const char* reduction :
       {"red.global.add.f32 [%rd5], %f1;\n", "atom.global.add.f32 %f2, [%rd5], %f1;\n"}) {
    metrics = counts(reduction);
    CHECK(metrics.at("sm_l2_read_bytes") == 0);
    CHECK(metrics.at("reduction_bytes") == 4096);
    CHECK(metrics.at("sm_l2_write_bytes") == 4096);
  }
}

TEST_CASE("emulator: a short buffer is named with the line, the buffer and how far") {
  const auto kernel = std::make_unique<CalledKernel>();
  kernel->y_count = 1000;
  const KernelResult result = (*kernel)(kernel_ptx(copy_body(1)));
  CHECK_FALSE(result.completed);
  const auto found = findings(result, FindingKind::out_of_bounds);
  REQUIRE(found.size() == 1);
  CHECK(found[0].lines.at(0).text() == "kernel.cu:12");
  CHECK(found[0].text.find("0 bytes beyond the end of 'y' of 4000 bytes") != std::string::npos);
}

/// y[i] = x[127 - i] of a CTA through shared memory: stored at line 11, loaded at 13.
std::string reversal(bool waits, const std::string& store = "st.shared.f32 [%r6], %f1;\n") {
  return kernel_ptx(
      "mul.wide.s32 %rd3, %r4, 4;\nadd.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd5, %rd2, %rd3;\nmov.u32 %r5, tile;\n"
      "shl.b32 %r7, %r3, 2;\nadd.u32 %r6, %r5, %r7;\nsub.u32 %r8, 508, %r7;\nadd.u32 %r8, %r5, %r8;\n"
      "ld.global.f32 %f1, [%rd4];\n.loc 1 11 1\n" +
          store + (waits ? ".loc 1 12 1\nbar.sync 0;\n" : "") +
          ".loc 1 13 1\nld.shared.f32 %f2, [%r8];\n.loc 1 14 1\nst.global.f32 [%rd5], %f2;\n",
      ".shared .align 16 .b8 tile[512];\n");
}

TEST_CASE("emulator: a missing barrier is a race between two lines") {
  for (const bool waits : {true, false}) {
    const auto kernel = std::make_unique<CalledKernel>();
    kernel->call.options.races = true;
    const KernelResult result = (*kernel)(reversal(waits));
    const auto found = findings(result, FindingKind::race);
    CHECK(found.empty() == waits);
    if (waits) continue;
    CHECK(found[0].lines.at(0).text() == "kernel.cu:11");
    CHECK(found[0].lines.at(1).text() == "kernel.cu:13");
  }
}

TEST_CASE("emulator: what ends a launch does not hide the races before it") {
  const auto kernel = std::make_unique<CalledKernel>();
  kernel->call.options.races = true;
  std::string ptx = reversal(false);
  ptx.insert(ptx.rfind("ret;"), ".loc 1 15 1\nbar.sync 0;\ntrap;\n");
  const KernelResult result = (*kernel)(ptx);
  CHECK_FALSE(result.completed);
  REQUIRE(findings(result, FindingKind::fault).size() == 1);
  CHECK(findings(result, FindingKind::fault)[0].lines.at(0).text() == "kernel.cu:15");
  REQUIRE_FALSE(findings(result, FindingKind::race).empty());
  CHECK(findings(result, FindingKind::race)[0].lines.at(0).text() == "kernel.cu:11");
}

TEST_CASE("emulator: a missing wait for cp.async is a race between the copy's line and the reader's") {
  for (const bool waits : {true, false}) {
    for (const std::string wait :
         {"cp.async.commit_group;\ncp.async.wait_group 0;\n", "cp.async.wait_all;\n"}) {
      const auto kernel = std::make_unique<CalledKernel>();
      kernel->call.options.races = true;
      const KernelResult result = (*kernel)(reversal(true, "cp.async.ca.shared.global [%r6], [%rd4], 4;\n" +
                                                               (waits ? wait : "cp.async.commit_group;\n")));
      const auto found = findings(result, FindingKind::race);
      CHECK(found.empty() == waits);
      CHECK(findings(result, FindingKind::uninitialised).empty());
      if (waits) continue;
      CHECK(found[0].lines.at(0).text() == "kernel.cu:11");
      CHECK(found[0].lines.at(1).text() == "kernel.cu:13");
    }
  }
}

TEST_CASE("emulator: what was inlined from the toolkit's headers counts where it was called") {
  const auto kernel = std::make_unique<CalledKernel>();
  std::string ptx = kernel_ptx(copy_body(1));
  ptx.insert(ptx.find(".visible"), ".file 2 \"/usr/local/cuda/include/a.h\"\n.file 3 \"/src/mine.h\"\n");
  const std::string load = ".loc 1 11 1\n";
  const auto place_of_load = [&](const std::string& places) {
    std::string changed = ptx;
    const KernelResult result = (*kernel)(changed.replace(changed.find(load), load.size(), load + places));
    for (const LineCounts& line : result.counts.lines) {
      if (line.read_bytes > 0) return line.place.text();
    }
    return std::string();
  };
  const std::string once = ".loc 2 69 9, function_name f, inlined_at 1 11 1\n";
  CHECK(place_of_load(once) == "kernel.cu:11");
  CHECK(place_of_load(once + ".loc 2 7 9, function_name g, inlined_at 2 69 9\n") == "kernel.cu:11");
  CHECK(place_of_load(".loc 3 5 9, function_name h, inlined_at 1 11 1\n") == "mine.h:5");
}

TEST_CASE("emulator: lanes that store one value to one place are no race, those that store several are") {
  for (const char* value : {"%r1", "%r3"}) {
    const auto kernel = std::make_unique<CalledKernel>();
    kernel->call.options.races = true;
    kernel->call.block = {32};
    const KernelResult result =
        (*kernel)(kernel_ptx("mov.u32 %r5, tile;\nst.shared.u32 [%r5], " + std::string(value) + ";\n",
                             ".shared .align 16 .b8 tile[512];\n"));
    CHECK(findings(result, FindingKind::race).empty() == (value == std::string("%r1")));
  }
}

TEST_CASE("emulator: a read of shared memory that nobody wrote is named") {
  const auto kernel = std::make_unique<CalledKernel>();
  kernel->call.options.races = true;
  const KernelResult result =
      (*kernel)(reversal(true, "setp.ne.s32 %p2, %r3, %r3;\n@%p2 st.shared.f32 [%r6], %f1;\n"));
  const auto found = findings(result, FindingKind::uninitialised);
  REQUIRE(found.size() == 1);
  CHECK(found[0].lines.at(0).text() == "kernel.cu:13");
  CHECK(findings((*kernel)(reversal(true)), FindingKind::uninitialised).empty());
}

TEST_CASE("emulator: bank conflicts are named, and broadcasts are none") {
  const auto conflicts = [](int stride) {
    const auto kernel = std::make_unique<CalledKernel>();
    return findings(
        (*kernel)(kernel_ptx("mov.u32 %r5, tile;\nmul.lo.u32 %r7, %r3, " + std::to_string(stride) +
                                 ";\nadd.u32 %r6, %r5, %r7;\n.loc 1 11 1\nst.shared.u32 [%r6], %r3;\n",
                             ".shared .align 16 .b8 tile[16384];\n")),
        FindingKind::bank_conflicts);
  };
  CHECK(conflicts(4).empty());
  CHECK(conflicts(0).empty());
  const auto found = conflicts(128);
  REQUIRE(found.size() == 1);
  CHECK(found[0].lines.at(0).text() == "kernel.cu:11");
  CHECK(found[0].text == "32.0 wavefronts a request to shared memory where 1.0 suffice");
}

TEST_CASE("emulator: a hang says who waits, at which line") {
  const auto kernel = std::make_unique<CalledKernel>();
  const KernelResult result = (*kernel)(
      kernel_ptx("setp.lt.s32 %p1, %r3, 64;\n@%p1 bra DONE;\n.loc 1 15 1\nbar.sync 1, 128;\nDONE:\n"));
  const auto found = findings(result, FindingKind::hang);
  REQUIRE(found.size() == 1);
  CHECK(found[0].lines.at(0).text() == "kernel.cu:15");
  CHECK(found[0].text.find("warp 2") != std::string::npos);
}

TEST_CASE("emulator: counts, results and findings are the same for every number of threads") {
  std::vector<KernelResult> results;
  std::vector<std::vector<std::uint32_t>> outputs;  // bits: what was not yet written is NaN
  for (const int threads : {1, 2, 5}) {
    const auto kernel = std::make_unique<CalledKernel>();
    std::iota(kernel->x.begin(), kernel->x.end(), 0.0f);
    kernel->call.grid = {30};
    kernel->call.options.races = true;
    kernel->call.options.threads = threads;
    results.push_back((*kernel)(reversal(false)));
    std::transform(kernel->y.begin(), kernel->y.end(), std::back_inserter(outputs.emplace_back()),
                   [](float value) { return std::bit_cast<std::uint32_t>(value); });
  }
  for (std::size_t i = 1; i < results.size(); ++i) {
    CHECK(outputs[i] == outputs[0]);
    CHECK(results[i].counts.metrics == results[0].counts.metrics);
    CHECK(results[i].report.steps == results[0].report.steps);
    CHECK(results[i].counts.must_read_bytes == results[0].counts.must_read_bytes);
    REQUIRE(results[i].findings.size() == results[0].findings.size());
    CHECK(results[i].findings[0].text == results[0].findings[0].text);
  }
}

TEST_CASE("emulator: what does not fit is refused with one sentence") {
  const auto refused = [](const std::string& ptx, auto&& change, const char* words) {
    const auto kernel = std::make_unique<CalledKernel>();
    change(*kernel);
    CHECK_THROWS_WITH_AS((*kernel)(ptx), doctest::Contains(words), BadInput);
  };
  const std::string good = kernel_ptx(copy_body(1));
  const auto nothing = [](CalledKernel&) {};
  refused(good.substr(0, good.size() - 30), nothing, "PTX line ");
  refused("\1\2\3", nothing, "unknown directive");
  refused("", nothing, "has no kernel");
  refused(".version 11.0\n" + good.substr(good.find(".target")), nothing, "newer than 9.x");
  refused(kernel_ptx("tcgen05.alloc %r1, %r2;\nfoo.bar %r1;\n"), nothing,
          "2 instructions that are not known: PTX line");
  refused(
      good, [](CalledKernel& k) { k.call.kernel = "softmax"; }, "must name one of 1: kernel");
  refused(
      good, [](CalledKernel& k) { k.call.block = {2048}; }, "where 1 ... 1024 are allowed");
  refused(
      good, [](CalledKernel& k) { k.call.grid = {0}; }, "would not be launched: a grid of 0x1x1");
  refused(
      good, [](CalledKernel& k) { k.call.shared_bytes = 1 << 20; }, "a CTA has 232448 at most");
  refused(
      good, [](CalledKernel& k) { k.call.shared_bytes = 49153; }, "did not ask for more than 49152 B");
  refused(
      good, [](CalledKernel& k) { k.call.registers = 255, k.call.block = {512}; }, "an SM has 65536");
  refused(
      ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n.reg .b64 "
      "%rd<500000>;\nret;\n}\n",
      nothing, "arguments = 3: must be 0");
  refused(
      ".version 8.0\n.target sm_90a\n.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 c)\n{\n"
      ".reg .b64 %rd<500000>;\nret;\n}\n",
      [](CalledKernel& k) { k.call.block = {1024}; }, "all that run side by side may take");
  refused(
      ".version 8.0\n.target sm_90a\n.visible .entry k(.param .u64 a, .param .u32 b, .param .u32 "
      "c)\n{\nret;\n}\n",
      nothing, "argument 1 (y) = a buffer, a pointer of 8 bytes: must fit parameter b of 4 bytes");
  refused(
      kernel_ptx(
          "mov.u32 %r5, 0;\nLOOP:\nadd.u32 %r5, %r5, 1;\nsetp.lt.u32 %p1, %r5, 200;\n@%p1 bra LOOP;\n"),
      [](CalledKernel& k) {
        k.call.grid = {1 << 24};
        k.call.options.most_seconds = 0.2;
      },
      "s here, of which 0.2 are allowed");
  refused(
      kernel_ptx("LOOP:\nadd.u32 %r5, %r5, 1;\nbra LOOP;\n"),
      [](CalledKernel& k) { k.call.options.most_seconds = 0.1; },
      "took the 0.1 s that are allowed, and no end");
}

}  // namespace tilescope::gpu::emulator::kernel_call_test
