// SPDX-License-Identifier: Apache-2.0
// The options that choose a kernel, its tiles and their order.
#include <doctest/doctest.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>

#include "analysis/cli/options/kernel_options.hpp"
#include "tests/cli/run_program.hpp"

namespace tilescope::cli {
namespace {

struct Parsed {
  std::vector<const Kernel*> kernels;
  ProgramOptions options;  // of the first kernel
};

Parsed parse(std::vector<std::string> words, bool several = false) {
  CLI::App app;
  KernelOptions options;
  options.add_to(app, several);
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  app.parse(words);
  const std::vector<const Kernel*> kernels = options.kernels({"cpu:flash2"});
  return {kernels, options.program_options(*kernels.front(), {})};
}

}  // namespace

TEST_CASE("a kernel keeps its own choices where none are given") {
  const Parsed parsed = parse({});
  CHECK(parsed.kernels == std::vector{&find_kernel("cpu:flash2")});
  CHECK(parsed.options == parsed.kernels[0]->default_options({}));
}

TEST_CASE("every kernel option reaches its field") {
  const Parsed parsed =
      parse({"--tile", "128x32", "--backward", "split", "--order", "longest-first", "--scan", "sawtooth"});
  for (const PassOptions& pass : parsed.options.passes) CHECK(pass.tile == TileShape{128, 32});
  CHECK(parsed.options.backward == BackwardOrder::split);
  CHECK(parsed.options.order == TileOrder::longest_first);
  CHECK(parsed.options.scan == Scan::sawtooth);
}

TEST_CASE("several kernels only where a command takes them") {
  const std::vector<std::string> two = {"--kernel", "cpu:flash1", "--kernel", "cpu:standard"};
  CHECK(parse(two, true).kernels == std::vector{&find_kernel("cpu:flash1"), &find_kernel("cpu:standard")});
  CHECK_THROWS_AS(parse(two, false), CLI::ParseError);
}

TEST_CASE("all kernels have a name of their own, CPU first") {
  const std::vector<const Kernel*> kernels = all_kernels();
  CHECK(kernels.front()->name.starts_with("cpu:"));
  CHECK(kernels.back()->name.starts_with("gpu:"));
  for (const Kernel* kernel : kernels) CHECK(&find_kernel(std::string(kernel->name)) == kernel);
}

TEST_CASE("bad kernel options are refused by field, value and what is allowed") {
  struct Bad {
    std::vector<std::string> words;
    const char* said[3];
  };
  const Bad cases[] = {
      {{"--kernel", "cpu:flash3"}, {"kernel", "cpu:flash3", "did you mean cpu:flash1 or cpu:flash2"}},
      {{"--kernel", "flash2"}, {"kernel", "flash2", "cpu:flash2"}},
      {{"--kernel", ""}, {"kernel", "''", "cpu:flash2"}},
      {{"--tile", "64"}, {"tile", "64", "block_m x block_n"}},
      {{"--tile", "64x"}, {"tile", "64x", "block_m x block_n"}},
      {{"--tile", "0x64"}, {"tile", "0x64", "1 ... 4096"}},
      {{"--tile", "64x4097"}, {"tile", "64x4097", "1 ... 4096"}},
      {{"--tile", "64x-1"}, {"tile", "64x-1", "1 ... 4096"}},
      {{"--tile", "99999999999999999999x1"}, {"tile", "99999999999999999999x1", "1 ... 4096"}},
      {{"--backward", "splt"}, {"backward", "splt", "split, fused, q-outer, single-launch or ordered"}},
      {{"--kernel", "cpu:flash1", "--backward", "split"}, {"backward", "split", "cpu:flash1 has only one"}},
      {{"--order", "random"}, {"order", "random", "row-major"}},
      {{"--scan", "sideways"}, {"scan", "sideways", "ascending"}},
  };
  for (const Bad& bad : cases) {
    std::string message;
    try {
      parse(bad.words);
    } catch (const BadInput& error) {
      message = error.what();
    }
    CAPTURE(message);
    for (const char* part : bad.said) {
      CAPTURE(part);
      CHECK(message.find(part) != std::string::npos);
    }
  }
}

TEST_CASE("a kernel that has not the tile is not named among those that take the problem") {
  const auto result = testing::run_program({"simulate", "--kernel", "gpu:flash2-mma", "--tile", "7x9"});
  CHECK(result.exit_code == 2);
  const std::size_t able = result.err.find("this problem runs on");
  REQUIRE(able != std::string::npos);
  CHECK(result.err.find("gpu:flash3", able) != std::string::npos);
  CHECK(result.err.find("gpu:flash2-mma", able) == std::string::npos);
}

TEST_CASE("list kernels is a table of what each row says") {
  const auto result = testing::run_program({"list", "kernels"});
  REQUIRE(result.exit_code == 0);
  const std::string table = result.out.substr(result.out.find("\n\n"));
  for (const char* heading : {"rung", "forward", "backward", "head_dim built", "slices", "runs on",
                              "backward orders", "fp8 sums"}) {
    CAPTURE(heading);
    CHECK(table.find(heading) != std::string::npos);
  }
  CHECK(table.find(" 64 128 256 ") != std::string::npos);
  CHECK(table.find(" 256 (8n)") != std::string::npos);
  CHECK(table.find("All take: causal, window, groups") != std::string::npos);  // no column of one word
  CHECK(table.find(": .") == std::string::npos);                               // nor a note of nobody
  std::string words = table;  // of the notes, wherever their lines end
  std::replace(words.begin(), words.end(), '\n', ' ');
  for (int i = 0; i < kNumFeatures; ++i) {
    CHECK(words.find(to_string(static_cast<Feature>(i))) != std::string::npos);
  }
  const std::string rows =
      table.substr(0, table.find("\n\nAll take: "));  // a note's line may begin with a name
  for (const Kernel* kernel : all_kernels()) {
    const std::size_t line = rows.find("\n" + std::string(kernel->name) + " ");
    CAPTURE(kernel->name);
    REQUIRE(line != std::string::npos);
    int blocks = 0;
    std::string row;  // in as many blocks as the table was folded into
    for (std::size_t at = line; at != std::string::npos;
         at = rows.find("\n" + std::string(kernel->name) + " ", at + 1)) {
      row += rows.substr(at + 1, rows.find('\n', at + 1) - at);
      ++blocks;
    }
    CHECK(blocks <= 2);  // of more, nobody finds a kernel's row again
    CHECK(row.find(element_types_of(kernel->can.forward, " ", " ")) != std::string::npos);
    CHECK((row.find("CPU") != std::string::npos) == kernel->name.starts_with("cpu:"));
  }
}

TEST_CASE("a kernel that refuses a problem names those that take it") {
  AttentionProblem fp8{.dtype = ElementType::fp8e4m3};
  const Kernel& kernel = find_kernel("cpu:flash2");
  CHECK_NOTHROW(require_supported(kernel, fp8, Direction::forward, kernel.default_options(fp8)));
  CHECK_THROWS_WITH_AS(require_supported(kernel, fp8, Direction::backward, kernel.default_options(fp8)),
                       doctest::Contains("cpu:flash2"), BadInput);
}

}  // namespace tilescope::cli
