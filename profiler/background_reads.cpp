// SPDX-License-Identifier: Apache-2.0
#include "profiler/background_reads.hpp"

#include <cmath>

#include "profiler/bracketed_counters.hpp"
#include "profiler/nvtx_range.hpp"
#include "profiler/probe_kernels.hpp"
#include "profiler/runtime_check.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kShortestSleep = 100'000;  // [ns]
constexpr std::int64_t kLongestSleep = 1'000'000'000;
constexpr int kMeasurements = 5;

}  // namespace

std::vector<BackgroundReads> measure_background_reads() {
  const NvtxRange range("background reads");
  const DeviceContext device;
  BracketedCounters counters(CuptiLibrary::load(), device, "dram_read_bytes");
  launch_sleep(kShortestSleep, nullptr);  // loads its code, which would be counted
  check_runtime(cudaDeviceSynchronize(), "a kernel that sleeps");
  std::vector<BackgroundReads> measured;
  for (std::int64_t nanoseconds = kShortestSleep; nanoseconds <= kLongestSleep; nanoseconds *= 10) {
    std::vector<double> bytes;
    for (int i = 0; i < kMeasurements; ++i) {
      const KernelMeasurement kernel = counters.measure("sleep", [&](CUstream stream) {
        launch_sleep(nanoseconds, stream);
        check_runtime(cudaGetLastError(), "a kernel that sleeps");
      });
      bytes.push_back(kernel.measured.at("dram_read_bytes"));
    }
    measured.push_back({kAsleep, 1e-9 * static_cast<double>(nanoseconds), std::llround(median_of(bytes))});
  }
  return measured;
}

}  // namespace tilescope
