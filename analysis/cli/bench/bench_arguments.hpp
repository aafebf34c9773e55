// SPDX-License-Identifier: Apache-2.0
// What `bench` is told on the command line.
#pragma once

#include <optional>
#include <string>

#include "analysis/cli/bench/bench_plan.hpp"
#include "analysis/cli/distributed/gpu_options.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/verify/rows_before.hpp"

namespace tilescope::cli {

struct BenchArguments {
  ProblemOptions problem;
  KernelOptions kernel;
  RowsBefore rows;
  BenchSweepOption sweep;
  GpuOptions gpus;
  std::optional<std::string> threads, repetitions, seconds, rounds, rest;
  bool peers = false, tune = false;
  std::string tune_file, csv, plot;
  std::string python = "python3";
};

}  // namespace tilescope::cli
