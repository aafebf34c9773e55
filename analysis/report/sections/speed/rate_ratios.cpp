// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/sections/speed/rate_ratios.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "common/statistics.hpp"

namespace tilescope {
namespace {

/// One launch after the other makes a sample where a direction has a single pass; else only sums are known.
const std::vector<double>* samples_of(const RunSummary& run) {
  if (run.passes.size() != 1 || !run.passes.front()->time) return nullptr;
  const std::vector<double>& samples = run.passes.front()->time->samples_s;
  return samples.empty() ? nullptr : &samples;
}

double least_seconds(const RunSummary& run) {
  double sum = 0;
  for (const PassRecord* pass : run.passes) sum += pass->time ? pass->time->min_s : 0;
  return sum;
}

double resampled_median(const std::vector<double>& samples, std::mt19937_64& generator) {
  std::vector<double> drawn(samples.size());
  for (double& value : drawn) value = samples[generator() % samples.size()];
  return median_of(std::move(drawn));
}

/// What errors of medians leave open, where samples were not kept.
void add_interval_of_errors(std::span<const TimedPair> pairs, RateRatio& ratio) {
  double variance = 0;
  for (const auto& [ours, peer] : pairs) {
    variance += median_error(*ours) * median_error(*ours) + median_error(*peer) * median_error(*peer);
  }
  const double half = kErrorsOf95 * std::sqrt(variance) / static_cast<double>(pairs.size());
  ratio.low = ratio.by_medians * std::exp(-half);
  ratio.high = ratio.by_medians * std::exp(half);
}

}  // namespace

double median_error(const RunSummary& run) {
  const double of_median = std::sqrt(std::numbers::pi / 2);  // a median's standard error over a mean's
  double seconds = 0, variance = 0;
  for (const PassRecord* pass : run.passes) {
    if (!pass->time) continue;
    const TimeRecord& time = *pass->time;
    const double samples =
        static_cast<double>(time.samples.value_or(static_cast<std::int64_t>(time.samples_s.size())));
    if (samples < 1) return 0;
    const double error = of_median * time.noise * time.median_s / std::sqrt(samples);
    variance += error * error;
    seconds += time.median_s;
  }
  return seconds == 0 ? 0 : std::sqrt(variance) / seconds;
}

std::string RateRatio::text() const {
  return low == high ? fmt::format("{:.2f}", by_medians)
                     : fmt::format("{:.2f} ({:.3f} ... {:.3f})", by_medians, low, high);
}

RateRatio rate_ratio(std::span<const TimedPair> pairs) {
  const double count = static_cast<double>(pairs.size());
  double medians = 0, minima = 0;
  bool sampled = true;
  for (const auto& [ours, peer] : pairs) {
    medians += std::log(*peer->median_seconds / *ours->median_seconds);
    minima += std::log(least_seconds(*peer) / least_seconds(*ours));
    sampled = sampled && samples_of(*ours) && samples_of(*peer);
  }
  const double mean = std::exp(medians / count);
  RateRatio ratio{mean, mean, mean, std::exp(minima / count)};
  if (!sampled) {
    add_interval_of_errors(pairs, ratio);
    return ratio;
  }
  constexpr int kResamples = 400;
  std::mt19937_64 generator(20260101);
  std::vector<double> means;
  for (int i = 0; i < kResamples; ++i) {
    double sum = 0;
    for (const auto& [ours, peer] : pairs) {
      sum += std::log(resampled_median(*samples_of(*peer), generator) /
                      resampled_median(*samples_of(*ours), generator));
    }
    means.push_back(std::exp(sum / count));
  }
  std::ranges::sort(means);
  constexpr int kCut = kResamples / 40;  // 2.5 of 100 at either end
  ratio.low = means[kCut];
  ratio.high = means[kResamples - 1 - kCut];
  return ratio;
}

}  // namespace tilescope
