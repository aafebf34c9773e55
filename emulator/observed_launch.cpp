// SPDX-License-Identifier: Apache-2.0
#include "emulator/observed_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "emulator/counts/traffic_counter.hpp"
#include "emulator/emulator.hpp"
#include "emulator/machine/cta_order.hpp"
#include "emulator/machine/launch_parts.hpp"

namespace tilescope::gpu::emulator {
namespace {

/// Excess below these shares of what is needed is not worth a word: rows that begin between sectors.
constexpr double kLeastExcess = 0.3;

class SourceLines {
 public:
  SourceLines(const ptx::Module& module, const ptx::Kernel& kernel) {
    for (const ptx::Instruction& instruction : kernel.instructions)
      by_ptx_line_[instruction.line] = source_of(module, instruction);
  }
  SourceLine of(int ptx_line) const {
    const auto found = by_ptx_line_.find(ptx_line);
    return found == by_ptx_line_.end() ? SourceLine{"", 0, ptx_line} : found->second;
  }
  std::vector<SourceLine> of(const std::vector<int>& ptx_lines) const {
    std::vector<SourceLine> lines;
    for (const int ptx_line : ptx_lines) {
      const SourceLine line = of(ptx_line);
      const bool told =
          std::ranges::any_of(lines, [&](const SourceLine& other) { return other.text() == line.text(); });
      if (!told) lines.push_back(line);
    }
    return lines;
  }

 private:
  std::map<int, SourceLine> by_ptx_line_;
};

/// One for each pair of source lines.
void add_races(std::vector<Finding>& findings, const std::vector<Race>& races, FindingKind kind,
               const SourceLines& lines) {
  const auto before = [](const SourceLine& a, const SourceLine& b) {
    return std::tie(a.file, a.line, a.ptx_line) < std::tie(b.file, b.line, b.ptx_line);
  };
  const auto same = [](const SourceLine& a, const SourceLine& b) { return a.text() == b.text(); };
  for (const Race& race : races) {
    Finding finding{kind, lines.of(std::vector<int>{race.first_line, race.second_line}), race.text};
    std::ranges::sort(finding.lines, before);
    const bool told = std::ranges::any_of(findings, [&](const Finding& other) {
      return other.kind == kind && std::equal(other.lines.begin(), other.lines.end(), finding.lines.begin(),
                                              finding.lines.end(), same);
    });
    if (!told) findings.push_back(std::move(finding));
  }
}

void add_costs(std::vector<Finding>& findings, const KernelCounts& counts) {
  const auto exceeds = [](std::uint64_t is, std::uint64_t least) {
    return static_cast<double>(is) > (1 + kLeastExcess) * static_cast<double>(least);
  };
  for (const LineCounts& line : counts.lines) {
    if (exceeds(line.sectors, line.least_sectors)) {
      findings.push_back(
          {FindingKind::uncoalesced,
           {line.place},
           fmt::format("{:.1f} sectors a request where {:.1f} suffice: {} of {} B in excess",
                       line.sectors_per_request(),
                       static_cast<double>(line.least_sectors) / static_cast<double>(line.requests),
                       line.excess_bytes(), line.sectors * 32)});
    }
    if (exceeds(line.wavefronts, line.least_wavefronts)) {
      const auto requests = static_cast<double>(line.shared_requests);
      findings.push_back({FindingKind::bank_conflicts,
                          {line.place},
                          fmt::format("{:.1f} wavefronts a request to shared memory where {:.1f} suffice",
                                      static_cast<double>(line.wavefronts) / requests,
                                      static_cast<double>(line.least_wavefronts) / requests)});
    }
  }
}

/// Races that were asked for and cannot be found.
void add_limits(std::vector<std::string>& notes, const Launch& launch, const TrafficCounter& counter) {
  if (launch.cluster.count() * launch.block.count() > kMostOrderedThreads)
    notes.push_back(
        fmt::format("races in shared memory were not looked for: a cluster of more than {} threads",
                    kMostOrderedThreads));
  if (!counter.accesses())
    notes.emplace_back("races between CTAs were not looked for: the buffers are too large for an account");
  else if (launch.grid.count() > launch.cluster.count() && may_order_ctas(*launch.kernel))
    notes.emplace_back(
        "races between CTAs in global memory were not looked for: the kernel has fences or acquires, which "
        "may order "
        "them");
}

}  // namespace

bool KernelResult::right() const {
  return completed &&
         std::ranges::none_of(findings, [](const Finding& finding) { return is_error(finding.kind); });
}

KernelResult observe(const ptx::Module& module, const Launch& launch, const Memory& memory,
                     const Options& options, std::optional<int> registers, L2Listener* l2,
                     const std::optional<StoreRuns>& store_runs) {
  require_runnable(launch);
  const auto begin = std::chrono::steady_clock::now();
  const SourceLines lines(module, *launch.kernel);
  TrafficCounter counter(launch, memory, registers, options.races, l2, store_runs);
  Options observed = options;
  observed.observer = &counter;
  KernelResult result;
  result.kernel = launch.kernel->name;
  try {
    result.report = run(launch, memory, observed);
    result.completed = true;
  } catch (const DeviceError& error) {
    result.findings.push_back({error.kind, lines.of(error.lines), error.what()});
    add_races(result.findings, error.races, FindingKind::race, lines);
  }
  result.counts = counter.counts(module, result.report);
  add_races(result.findings, result.report.races, FindingKind::race, lines);
  if (counter.accesses()) add_races(result.findings, counter.accesses()->races(), FindingKind::race, lines);
  add_races(result.findings, result.report.unwritten_reads, FindingKind::uninitialised, lines);
  if (counter.accesses())
    add_races(result.findings, counter.accesses()->unwritten_reads(), FindingKind::uninitialised, lines);
  if (options.races) add_limits(result.counts.notes, launch, counter);
  add_costs(result.findings, result.counts);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace tilescope::gpu::emulator
