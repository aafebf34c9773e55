// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibration/noise_floor.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "common/statistics.hpp"
#include "profiler/calibration/kernels.hpp"
#include "profiler/counters/bracketed_counters.hpp"
#include "profiler/driver/runtime_check.hpp"
#include "profiler/driver/scratch_buffer.hpp"
#include "profiler/timing/nvtx_range.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kShortest = 100'000;  // [ns]
constexpr std::int64_t kLongest = 1'000'000'000;
constexpr int kMeasurements = 5;

/// Two fifths of the L2: nearly what one of two partitions holds, so that what others read displaces some of
/// it.
std::int64_t footprint_in_l2(const DeviceContext& device) {
  const std::int64_t l2_bytes = device.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  return 2 * l2_bytes / 5 / kRewriteGrain * kRewriteGrain;
}

struct Load {
  const char* name;
  std::int64_t own_bytes;  // that it reads from DRAM itself
  std::function<void(std::int64_t nanoseconds, CUstream stream)> launch;
};

void check_launch(const Load& load) { check_runtime(cudaGetLastError(), load.name); }

std::int64_t median_reads(BracketedCounters& counters, const Load& load, std::int64_t nanoseconds) {
  std::vector<double> bytes;
  for (int i = 0; i < kMeasurements; ++i) {
    const KernelMeasurement kernel = counters.measure(load.name, [&](CUstream stream) {
      load.launch(nanoseconds, stream);
      check_launch(load);
    });
    bytes.push_back(kernel.measured.at("dram_read_bytes"));
  }
  return std::max<std::int64_t>(0, std::llround(median_of(bytes)) - load.own_bytes);
}

}  // namespace

std::vector<NoiseFloor> measure_noise_floor() {
  const NvtxRange range("noise floor");
  const DeviceContext device;
  const int sms = device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  const std::int64_t footprint = footprint_in_l2(device);
  const ScratchBuffer data(footprint);
  const Load loads[] = {
      {kAsleep, 0, [](std::int64_t nanoseconds, CUstream stream) { launch_sleep(nanoseconds, stream); }},
      {kComputing, 0,
       [&](std::int64_t nanoseconds, CUstream stream) {
         launch_compute(data.data(), sms, nanoseconds, stream);
       }},
      {kWorkingInL2, footprint, [&](std::int64_t nanoseconds, CUstream stream) {
         launch_rewrite(data.data(), footprint, nanoseconds, stream);
       }}};
  BracketedCounters counters(CuptiLibrary::load(), device, "dram_read_bytes");
  std::vector<NoiseFloor> measured;
  for (const Load& load : loads) {
    load.launch(kShortest, nullptr);  // loads its code, which would be counted
    check_launch(load);
    check_runtime(cudaDeviceSynchronize(), load.name);
    for (std::int64_t decade = kShortest; decade <= kLongest; decade *= 10) {
      for (const std::int64_t nanoseconds : {decade, 3 * decade}) {
        if (nanoseconds > kLongest) continue;
        measured.push_back(
            {load.name, 1e-9 * static_cast<double>(nanoseconds), median_reads(counters, load, nanoseconds)});
      }
    }
  }
  return measured;
}

}  // namespace tilescope
