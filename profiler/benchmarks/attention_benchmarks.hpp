// SPDX-License-Identifier: Apache-2.0
// Times of attention kernels on this CPU, and of a matrix product in the same run to measure them by.
#pragma once

#include <cstdint>
#include <functional>
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
};

/// Matrix products of one thread count.
struct ProductTimes {
  int threads = 1;
  std::int64_t flops = 0;  // of one product
  std::vector<double> samples_s;
  double fma_flops_per_second = 0;  // what these threads' arithmetic units allow; 0: not known
};

struct BenchmarkResults {
  std::vector<std::vector<double>> samples_s;  // by case
  std::string product_library;                 // empty: no BLAS library was found
  std::vector<ProductTimes> products;          // one a thread count
};

/// Runs the cases through Google Benchmark, their samples and those of the products in random order, so that
/// a machine that slows down slows all of them. Inputs are random; each case runs once before it is timed.
/// @throws what a kernel throws; MachineLacks in a build without Google Benchmark
BenchmarkResults run_benchmarks(const std::vector<BenchmarkCase>& cases, const BenchmarkSettings& settings);

}  // namespace tilescope
