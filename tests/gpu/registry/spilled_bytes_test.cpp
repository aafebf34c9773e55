// SPDX-License-Identifier: Apache-2.0
// What rows say that a launch spills, held to what ptxas reports of its kernel on sm_90.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "gpu/registry/kernel_registry.hpp"
#include "tests/paths.hpp"

namespace tilescope {
namespace {

AttentionProblem problem_of(std::int64_t head_dim, ElementType dtype) {
  return {.seqlen_q = 4096, .seqlen_k = 4096, .head_dim = head_dim, .dtype = dtype};
}

TileProgram program_of(const Kernel& row, const AttentionProblem& problem, PassName pass,
                       ProgramOptions options) {
  options.backward = pass == PassName::dkdvdq ? BackwardOrder::fused : BackwardOrder::split;
  const Direction direction = pass == PassName::forward ? Direction::forward : Direction::backward;
  const auto programs = row.programs(direction, problem, options);
  return *std::ranges::find(programs, pass, &TileProgram::name);
}

int spilled_bytes(const AttentionProblem& problem, const Chip& chip = kSm90) {
  const Kernel& row = find_gpu_kernel("gpu:flash2-mma").row;
  const TileProgram program = program_of(row, problem, PassName::forward, row.default_options(problem));
  return row.launch_shape(program, chip).spilled_bytes;
}

TEST_CASE("what a launch spills is known of plain instances on sm_90 alone") {
  AttentionProblem problem = problem_of(128, ElementType::fp16);
  CHECK(spilled_bytes(problem) > 0);
  CHECK(spilled_bytes(problem, kSm80) == 0);
  problem.dropout = 0.1;
  CHECK(spilled_bytes(problem) == 0);
  CHECK(spilled_bytes(problem_of(100, ElementType::fp16)) == 0);
}

#ifdef TILESCOPE_SPILL_REPORTS
/// Bytes of each kernel's stack on sm_90a, by its mangled name.
std::map<std::string, int> reported_stacks() {
  const std::regex begins("Compiling entry function '([^']+)' for 'sm_90a'");
  const std::regex stack("([0-9]+) bytes stack frame");
  std::map<std::string, int> stacks;
  for (const auto& file : std::filesystem::recursive_directory_iterator(TILESCOPE_SPILL_REPORTS)) {
    if (file.path().extension() != ".ptxas") continue;
    std::ifstream report(file.path());
    std::smatch found;
    for (std::string line, kernel; std::getline(report, line);) {
      if (std::regex_search(line, found, begins)) kernel = found[1];
      if (kernel.empty() || !std::regex_search(line, found, stack)) continue;
      stacks[kernel] = std::stoi(found[1]);
      kernel.clear();
    }
  }
  return stacks;
}

/// Part of the mangled name of gpu:flash2-mma's plain instance of its own tile.
std::string mangled(PassName pass, const AttentionProblem& problem) {
  const std::string instance =
      fmt::format("ILNS_11ElementTypeE{}ELi{}E", static_cast<int>(problem.dtype), problem.head_dim);
  constexpr std::string_view kPlain = "LNS0_8FeaturesE0ENS0_";
  if (pass == PassName::forward) return fmt::format("flash2_mma_forward{}{}14Default", instance, kPlain);
  if (pass == PassName::dq) return fmt::format("flash2_mma_dq{}{}9Default", instance, kPlain);
  const int adds_dq = pass == PassName::dkdvdq ? 1 : 0;
  return fmt::format("flash2_mma_dkdv{}Lb{}E{}11Default", instance, adds_dq, kPlain);
}

TEST_CASE("rows say what ptxas reports of registers that spill") {
  const Kernel& row = find_gpu_kernel("gpu:flash2-mma").row;
  const std::map<std::string, int> stacks = reported_stacks();
  for (const ElementType dtype : {ElementType::fp16, ElementType::bf16}) {
    for (const std::int64_t head_dim : {64, 128, 256}) {
      const AttentionProblem problem = problem_of(head_dim, dtype);
      for (const PassName pass : {PassName::forward, PassName::dkdv, PassName::dkdvdq, PassName::dq}) {
        const std::string name = mangled(pass, problem);
        CAPTURE(name);
        const TileProgram program = program_of(row, problem, pass, row.default_options(problem));
        const auto kernel = std::ranges::find_if(
            stacks, [&name](const auto& one) { return one.first.find(name) != std::string::npos; });
        REQUIRE(kernel != stacks.end());
        CHECK(row.launch_shape(program, kSm90).spilled_bytes == kernel->second);
      }
    }
  }
}
#endif

}  // namespace
}  // namespace tilescope
