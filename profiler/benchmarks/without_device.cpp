// SPDX-License-Identifier: Apache-2.0
// Stands in for the times on a device in a build made without CUDA's headers.
#include "common/errors.hpp"
#include "profiler/benchmarks/device_benchmarks.hpp"

namespace tilescope {

DeviceBenchmarkResults run_device_benchmarks(const std::vector<BenchmarkCase>&,
                                             const DeviceBenchmarkSettings&, PeerProcess*) {
  throw MachineLacks(
      "this build has no GPU side: build where nvcc is on the PATH. The cpu: kernels need no device");
}

}  // namespace tilescope
