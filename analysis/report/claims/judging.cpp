// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/claims/judging.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/model/counts/pass_metrics.hpp"

namespace tilescope {

Judgement judge_cases(std::size_t agree, std::size_t all, const std::string& what) {
  return {verdict_of_cases(agree, all), fmt::format("{} of {} {}", agree, all, what)};
}

std::vector<const RunSummary*> timed_runs(const std::vector<RunSummary>& runs, const std::string& kernel,
                                          Direction direction) {
  std::vector<const RunSummary*> timed;
  for (const RunSummary& run : runs) {
    if (run.median_seconds && !run.closed_form && run.run->kernel == kernel && run.direction == direction)
      timed.push_back(&run);
  }
  return timed;
}

bool has_paper_count(const AttentionProblem& problem) {
  return problem.window_left < 0 && problem.window_right < 0;
}

double paper_rate_of(const RunSummary& run) {
  return static_cast<double>(paper_flops(run.problem(), run.direction)) / *run.median_seconds;
}

std::vector<double> rate_ratios(const std::vector<RunSummary>& runs, const std::string& kernel,
                                const std::string& peer, Direction direction,
                                const std::function<bool(const AttentionProblem&)>& wanted) {
  std::vector<double> ratios;
  const std::vector<const RunSummary*> peers = timed_runs(runs, peer, direction);
  for (const RunSummary* run : timed_runs(runs, kernel, direction)) {
    if (wanted && !wanted(run->problem())) continue;
    const auto other = std::ranges::find_if(peers, [run](const RunSummary* each) {
      return each->record == run->record && each->problem() == run->problem();
    });
    if (other != peers.end()) ratios.push_back(paper_rate_of(*run) / paper_rate_of(**other));
  }
  return ratios;
}

double geometric_mean_of(const std::vector<double>& ratios) {
  if (ratios.empty()) return 0;
  double sum = 0;
  for (const double ratio : ratios) sum += std::log(ratio);
  return std::exp(sum / static_cast<double>(ratios.size()));
}

std::string ratios_text(const std::vector<double>& ratios) {
  if (ratios.empty()) return "no record";
  const auto [low, high] = std::ranges::minmax(ratios);
  return fmt::format("{:.2f} ... {:.2f}, geometric mean {:.2f}, over {} problems", low, high,
                     geometric_mean_of(ratios), ratios.size());
}

std::optional<double> counted(const RunSummary& run, const std::string& metric) {
  double sum = 0;
  for (const PassRecord* pass : run.passes) {
    const auto metrics = pass_metrics(*pass);
    const auto found = metrics.find(metric);
    if (found == metrics.end()) return std::nullopt;
    sum += found->second;
  }
  return sum;
}

std::string short_device(const RunSummary& run) {
  const std::string name = device_name(run);
  for (const char* known : {"H100", "H200"}) {
    if (name.find(known) != std::string::npos) return std::string("an ") + known;
  }
  return name;
}

std::string device_name(const RunSummary& run) {
  return run.record->machine.name.value_or("an unknown device");
}

}  // namespace tilescope
