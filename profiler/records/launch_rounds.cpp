// SPDX-License-Identifier: Apache-2.0
#include "profiler/records/launch_rounds.hpp"

#include <algorithm>
#include <cmath>

#include "common/errors.hpp"
#include "common/statistics.hpp"
#include "profiler/timing/timed_samples.hpp"

namespace tilescope {
namespace {

using Run = std::vector<KernelMeasurement>;

bool same_geometry(const KernelMeasurement& a, const KernelMeasurement& b) {
  return a.launch.grid == b.launch.grid && a.launch.block == b.launch.block;
}

/// How many launches come before the first comes again with all that follows it; all if none does.
std::size_t round_length(const Run& run) {
  for (std::size_t length = 1; length < run.size(); ++length) {
    if (run.size() % length != 0) continue;
    const bool repeats = std::equal(run.begin() + static_cast<std::ptrdiff_t>(length), run.end(), run.begin(),
                                    [](const KernelMeasurement& a, const KernelMeasurement& b) {
                                      return a.name == b.name && same_geometry(a, b);
                                    });
    if (repeats) return length;
  }
  return run.size();
}

void add_run(const Run& run, std::vector<LaunchRounds>& launches) {
  for (std::size_t i = 0; i < run.size(); ++i) {
    LaunchRounds& launch = launches[i % launches.size()];
    if (!same_geometry(run[i], launch.first)) {
      throw BadInput("kernel", run[i].name, "must have the grid and block that it has in the first run");
    }
    launch.all.push_back(run[i]);
  }
}

using Values = std::map<std::string, double>;

/// By name, of every launch that has the name.
Values medians(const std::vector<KernelMeasurement>& launches, Values KernelMeasurement::*part) {
  std::map<std::string, std::vector<double>> numbers;
  for (const KernelMeasurement& launch : launches) {
    for (const auto& [name, value] : launch.*part) {
      std::vector<double>& all = numbers[name];
      if (!std::isnan(value)) all.push_back(value);  // 0 / 0 of a ratio has no place in an order
    }
  }
  Values result;
  for (const auto& [name, all] : numbers) result[name] = all.empty() ? std::nan("") : median_of(all);
  return result;
}

}  // namespace

std::vector<LaunchRounds> gather_rounds(const std::vector<std::vector<KernelMeasurement>>& runs) {
  std::vector<LaunchRounds> launches;
  if (runs.empty()) return launches;
  const std::size_t length = round_length(runs.front());
  for (std::size_t i = 0; i < length; ++i) launches.push_back({runs.front()[i], {}});
  for (const Run& run : runs) {
    if (round_length(run) != length) {
      throw BadInput("kernels", std::to_string(round_length(run)) + " in a round",
                     "must be " + std::to_string(length) + ", as in the first run");
    }
    add_run(run, launches);
  }
  return launches;
}

std::optional<Spread> spread_of(const LaunchRounds& launch, const std::string& metric,
                                const std::string& counter) {
  std::vector<double> values;
  for (const KernelMeasurement& kernel : launch.all) {
    if (const auto measured = kernel.measured.find(metric); measured != kernel.measured.end()) {
      values.push_back(measured->second);
    } else if (const auto counted = kernel.counters.find(counter); counted != kernel.counters.end()) {
      values.push_back(counted->second);
    } else {
      return std::nullopt;
    }
  }
  if (values.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return Spread{median_of(values), *least, *most, values.size()};
}

KernelMeasurement median_of_launches(const std::vector<KernelMeasurement>& launches) {
  KernelMeasurement median = launches.at(0);
  median.counters = medians(launches, &KernelMeasurement::counters);
  median.measured = medians(launches, &KernelMeasurement::measured);
  return median;
}

}  // namespace tilescope
