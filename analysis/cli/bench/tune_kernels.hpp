// SPDX-License-Identifier: Apache-2.0
// `bench --tune`, from its options to the file of tiles.
#pragma once

#include "analysis/cli/bench/bench_arguments.hpp"
#include "analysis/cli/command.hpp"
#include "profiler/benchmarks/device_benchmarks.hpp"

namespace tilescope::cli {

/// Times every choice of the kernels and keeps the fastest; the exit code.
/// @throws BadInput for options that leave no choice; MachineLacks
int tune(BenchArguments& arguments, const DeviceBenchmarkSettings& settings, const CommandContext& context);

}  // namespace tilescope::cli
