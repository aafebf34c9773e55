// SPDX-License-Identifier: Apache-2.0
// How fast are they? Beside other libraries where they ran too, else beside a matrix product of the CPU.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/sections/speed/device_runs.hpp"
#include "analysis/report/sections/verdicts.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// The rates of our fastest kernel over those of the fastest peer, problem by problem.
struct AgainstPeers {
  double mean = 0;  // geometric
  double worst = HUGE_VAL;
  int problems = 0;
};

AgainstPeers against_fastest_peer(const DeviceRuns& group) {
  double sum = 0;
  AgainstPeers result;
  for (const AttentionProblem& problem : group.problems()) {
    double fastest[2] = {};  // the peers', ours
    for (const RunSummary* run : group.runs) {
      double& rate = fastest[is_ours(*run)];
      if (run->problem() == problem) rate = std::max(rate, paper_rate(*run));
    }
    if (fastest[0] == 0 || fastest[1] == 0) continue;
    sum += std::log(fastest[1] / fastest[0]);
    result.worst = std::min(result.worst, fastest[1] / fastest[0]);
    ++result.problems;
  }
  if (result.problems > 0) result.mean = std::exp(sum / result.problems);
  return result;
}

/// The share of a matrix product's rate that the fastest CPU kernel reaches.
std::optional<Finding> cpu_speed_verdict(const std::vector<RunSummary>& runs) {
  const RunSummary* fastest = nullptr;
  double best = 0;
  for (const RunSummary& run : runs) {
    if (!run.median_seconds || !run.run->kernel.starts_with("cpu:") || run.passes.empty()) continue;
    const auto& counters = run.passes.front()->counters;
    const auto product = counters.find("sgemm_flops_per_second");
    if (product == counters.end()) continue;
    const double rate = std::visit([](auto value) { return static_cast<double>(value); }, product->second);
    const double share = static_cast<double>(run.useful_flops) / *run.median_seconds / rate;
    if (share > best) {
      best = share;
      fastest = &run;
    }
  }
  if (!fastest) return std::nullopt;
  return Finding{
      "How fast are they?", fmt::format("{:.0f} %", 100 * best),
      fmt::format("`{}` reaches {:.0f} % of the rate of a single-precision matrix product on the same "
                  "threads: {}, {}, {}.",
                  fastest->run->kernel, 100 * best, problem_text(*fastest), to_string(fastest->direction),
                  machine_text(*fastest)),
      Outcome::told, "speed"};
}

}  // namespace

std::optional<Finding> speed_verdict(const std::vector<RunSummary>& runs) {
  double slowest = 0, worst_of_all = HUGE_VAL;
  std::vector<std::string> ratios, passes;
  std::string device;
  for (const DeviceRuns& group : runs_beside_peers(runs)) {
    const auto [ratio, worst, count] = against_fastest_peer(group);
    if (count == 0) continue;
    slowest = ratios.empty() ? ratio : std::min(slowest, ratio);
    worst_of_all = std::min(worst_of_all, worst);
    ratios.push_back(
        fmt::format("{} {}", format_ratio(ratio), group.direction == Direction::forward ? "fwd" : "bwd"));
    passes.push_back(fmt::format("{} {} over {} problems, {} at worst", format_ratio(ratio),
                                 to_string(group.direction), count, format_ratio(worst)));
    device = group.record->machine.name.value_or("unknown device");
  }
  if (ratios.empty()) return cpu_speed_verdict(runs);
  constexpr double kLevel = 0.95;  // of a problem: what two runs of one kernel may differ by
  const char* verdict = slowest >= 1     ? worst_of_all >= 1        ? "Faster."
                                           : worst_of_all >= kLevel ? "Faster on the mean, level at worst."
                                                                    : "Faster on the mean, not everywhere."
                        : slowest >= 0.9 ? "Nearly as fast."
                                         : "Slower.";
  return Finding{
      "How fast are they?", fmt::to_string(fmt::join(ratios, ", ")),
      fmt::format("**{}** Our fastest kernel's rate over that of the fastest library beside it, geometric "
                  "means: {} ({}).",
                  verdict, fmt::join(passes, "; "), device),
      slowest >= 0.9 ? Outcome::good : Outcome::mixed, "device-speed"};
}

}  // namespace tilescope
