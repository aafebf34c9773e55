// SPDX-License-Identifier: Apache-2.0
// What ptxas reports that kernels spill, held to a budget and to what their rows say that a launch spills.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

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
/// What ptxas says of a kernel on an architecture. [B a thread]
struct PtxasReport {
  std::string kernel;  // mangled
  std::string architecture;
  int stack = 0, spilled = 0;
};

std::vector<PtxasReport> ptxas_reports() {
  const std::regex begins("Compiling entry function '([^']+)' for '([^']+)'");
  const std::regex says(
      "([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads");
  std::vector<PtxasReport> reports;
  for (const auto& file : std::filesystem::recursive_directory_iterator(TILESCOPE_SPILL_REPORTS)) {
    if (file.path().extension() != ".ptxas") continue;
    std::ifstream text(file.path());
    std::smatch found;
    PtxasReport report;
    for (std::string line; std::getline(text, line);) {
      if (std::regex_search(line, found, begins)) report = {found[1], found[2]};
      if (report.kernel.empty() || !std::regex_search(line, found, says)) continue;
      report.stack = std::stoi(found[1]);
      report.spilled = std::stoi(found[2]) + std::stoi(found[3]);
      reports.push_back(std::exchange(report, {}));
    }
  }
  return reports;
}

TEST_CASE("spills stay within the budget") {
  std::ifstream text(TILESCOPE_SOURCE_DIR "/gpu/spills/spill_budget.txt");
  std::vector<std::pair<std::regex, int>> budget;
  for (std::string line; std::getline(text, line);) {
    const std::size_t space = line.rfind(' ');
    if (!line.empty() && line[0] != '#')
      budget.emplace_back(line.substr(0, space), std::stoi(line.substr(space)));
  }
  const std::vector<PtxasReport> reports = ptxas_reports();
  REQUIRE(!reports.empty());
  for (const auto& [kernel, architecture, stack, spilled] : reports) {
    if (spilled == 0) continue;
    CAPTURE(kernel);
    CAPTURE(architecture);
    const auto allowed = std::ranges::find_if(
        budget, [&kernel](const auto& entry) { return std::regex_search(kernel, entry.first); });
    CHECK(spilled <= (allowed == budget.end() ? 0 : allowed->second));
  }
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
  const std::vector<PtxasReport> reports = ptxas_reports();
  for (const ElementType dtype : {ElementType::fp16, ElementType::bf16}) {
    for (const std::int64_t head_dim : {64, 128, 256}) {
      const AttentionProblem problem = problem_of(head_dim, dtype);
      for (const PassName pass : {PassName::forward, PassName::dkdv, PassName::dkdvdq, PassName::dq}) {
        const std::string name = mangled(pass, problem);
        CAPTURE(name);
        const TileProgram program = program_of(row, problem, pass, row.default_options(problem));
        const auto report = std::ranges::find_if(reports, [&name](const PtxasReport& one) {
          return one.architecture == "sm_90a" && one.kernel.find(name) != std::string::npos;
        });
        REQUIRE(report != reports.end());
        CHECK(row.launch_shape(program, kSm90).spilled_bytes == report->stack);
      }
    }
  }
}
#endif

}  // namespace
}  // namespace tilescope
