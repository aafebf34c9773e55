// SPDX-License-Identifier: Apache-2.0
// Stands in for the benchmarks in a build made without Google Benchmark.
#include "common/errors.hpp"
#include "profiler/benchmarks/attention_benchmarks.hpp"

namespace tilescope {

BenchmarkResults run_benchmarks(const std::vector<BenchmarkCase>&, const BenchmarkSettings&) {
  throw MachineLacks(
      "this build cannot time kernels: Google Benchmark was not found when it was configured; install "
      "libbenchmark-dev and build again");
}

}  // namespace tilescope
