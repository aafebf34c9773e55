// SPDX-License-Identifier: Apache-2.0
// A launch in parts that threads share. Parts are runs of clusters; into how many a launch falls depends on
// the launch alone, and each draws from a seed of its own, so that no result depends on the number of
// threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "emulator/machine/launch.hpp"

namespace tilescope::gpu::emulator {

struct LaunchPart {
  std::uint64_t begin = 0, end = 0;  // clusters
  std::uint64_t seed = 0;
};

/// What all parts have done together. Its member functions may be called by several threads.
class Progress {
 public:
  Progress(const Launch& launch, const Options& options);
  /// @returns how many warp instructions there were @throws TakesTooLong after Options::most_seconds
  std::uint64_t add(std::uint64_t steps);
  std::uint64_t steps() const { return steps_; }
  /// A cluster has ended. @throws TakesTooLong once it shows that all would take longer than they may
  void ended();

 private:
  using Clock = std::chrono::steady_clock;
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }
  double most_seconds_;
  std::uint64_t clusters_;
  std::atomic<std::uint64_t> steps_ = 0, ended_ = 0;
  Clock::time_point began_ = Clock::now();
};

/// @throws DeviceError for a launch that no device takes
void require_runnable(const Launch& launch);

/// Whether its CTAs wait for each other at a barrier of the grid, and must all be there at once.
bool is_cooperative(const ptx::Kernel& kernel);

/// Whether no CTA can learn of another but by a data race: no atomics, no loads that wait for others. Such a
/// launch may be cut into parts.
bool ctas_are_apart(const ptx::Kernel& kernel);

/// Runs all parts, by as many threads as the options allow, and adds up their reports in order. What the
/// first part throws that throws at all is thrown.
Report run_parts(const Launch& launch, const Options& options,
                 const std::function<Report(const LaunchPart&)>& run_part);

/// Adds the races that are not there yet.
void add_new_races(std::vector<Race>& races, const std::vector<Race>& more);

}  // namespace tilescope::gpu::emulator
