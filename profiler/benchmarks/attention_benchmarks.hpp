// SPDX-License-Identifier: Apache-2.0
// Times of attention kernels on this CPU, and of a matrix product in the same run to measure them by.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {

/// One direction of one kernel on one problem.
struct BenchmarkCase {
  const Kernel* kernel = nullptr;
  AttentionProblem problem;
  Direction direction = Direction::forward;
  ProgramOptions options;
  int threads = 1;
};

struct BenchmarkSettings {
  int repetitions = 5;          // samples of each case
  double sample_seconds = 0.3;  // a sample is the mean over as many runs as fit, at least one
  int product_side = 2048;      // of the matrices of the product
  /// Called before each sample with what it times.
  std::function<void(const std::string&)> on_sample = {};
  /// Asked between samples: whether to end with the groups that are whole.
  std::function<bool()> stopped = [] { return false; };
};

/// Matrix products of one thread count.
struct ProductTimes {
  int threads = 1;
  std::int64_t flops = 0;  // of one product
  std::vector<double> samples_s;
  double fma_flops_per_second = 0;  // what these threads' arithmetic units allow; 0: not known
};

struct BenchmarkResults {
  std::vector<std::vector<double>> samples_s;  // by case; the last ones are missing where it was stopped
  std::string product_library;                 // empty: no BLAS library was found
  std::vector<ProductTimes> products;          // one a thread count
};

/// The cases one after the other in groups that share a problem and a direction: what is compared with each
/// other.
inline std::vector<std::span<const BenchmarkCase>> groups_of(std::span<const BenchmarkCase> cases) {
  std::vector<std::span<const BenchmarkCase>> groups;
  for (std::size_t begin = 0, end = 0; begin < cases.size(); begin = end) {
    const auto shares = [&](const BenchmarkCase& c) {
      return c.problem == cases[begin].problem && c.direction == cases[begin].direction;
    };
    while (end < cases.size() && shares(cases[end])) ++end;
    groups.push_back(cases.subspan(begin, end - begin));
  }
  return groups;
}

/// Runs the cases through Google Benchmark, group after group, so that those which were timed before an
/// interruption are whole. A machine that slows down slows all of a group: its samples are taken in random
/// order, and those of the products among the samples of all groups. Inputs are random; each case runs once
/// before it is timed.
/// @throws what a kernel throws; MachineLacks in a build without Google Benchmark
BenchmarkResults run_benchmarks(const std::vector<BenchmarkCase>& cases, const BenchmarkSettings& settings);

}  // namespace tilescope
