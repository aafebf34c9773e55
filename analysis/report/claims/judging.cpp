// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/claims/judging.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/model/counts/measured_bytes.hpp"
#include "common/number_format.hpp"

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

std::string rate_text(const RunSummary& run) {
  const double rate = 1e-12 * paper_rate_of(run), half = kErrorsOf95 * median_error(run);
  if (half == 0) return fmt::format("{:.0f} TFLOP/s", rate);
  return fmt::format("{:.0f} ({:.1f} ... {:.1f}) TFLOP/s", rate, rate * (1 - half), rate * (1 + half));
}

std::string time_text(const RunSummary& run) {
  const double half = kErrorsOf95 * median_error(run);
  const std::string time = format_seconds(*run.median_seconds);
  return half == 0 ? time : fmt::format("{} +- {:.1g} %", time, 100 * half);
}

std::vector<TimedPair> timed_pairs(const std::vector<RunSummary>& runs, const std::string& kernel,
                                   const std::string& peer, Direction direction,
                                   const std::function<bool(const AttentionProblem&)>& wanted) {
  std::vector<TimedPair> pairs;
  const std::vector<const RunSummary*> peers = timed_runs(runs, peer, direction);
  for (const RunSummary* run : timed_runs(runs, kernel, direction)) {
    if (wanted && !wanted(run->problem())) continue;
    const auto other = std::ranges::find_if(peers, [run](const RunSummary* each) {
      return each->record == run->record && each->problem() == run->problem();
    });
    if (other != peers.end()) pairs.push_back({run, *other});
  }
  return pairs;
}

std::string ratios_text(const std::vector<TimedPair>& pairs) {
  if (pairs.empty()) return "no record";
  double low = HUGE_VAL, high = 0;
  for (const TimedPair& pair : pairs) {
    const double ratio = *pair.peer->median_seconds / *pair.ours->median_seconds;
    low = std::min(low, ratio);
    high = std::max(high, ratio);
  }
  const RateRatio mean = rate_ratio(pairs);
  if (pairs.size() == 1) return mean.text();
  return fmt::format("{:.2f} ... {:.2f}, geometric mean {}, over {} problems", low, high, mean.text(),
                     pairs.size());
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
