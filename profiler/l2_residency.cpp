// SPDX-License-Identifier: Apache-2.0
#include "profiler/l2_residency.hpp"

#include <algorithm>

#include "profiler/ceiling_kernels.hpp"
#include "profiler/device_context.hpp"
#include "profiler/scratch_buffer.hpp"
#include "profiler/work_profiler.hpp"

namespace tilescope {
namespace {

constexpr int kRounds = 5;
constexpr std::int64_t kStepsPerL2 = 16;
constexpr struct {
  L2Access access;
  const char* name;
} kAccesses[] = {{L2Access::read_by_all, kReadByAll},
                 {L2Access::read_by_one, kReadByOne},
                 {L2Access::reduced_by_one, kReducedByOne}};

}  // namespace

std::vector<L2Residency> measure_l2_residency() {
  const DeviceContext device;
  const std::int64_t l2_bytes = device.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  const int sms = device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  const std::int64_t step = l2_bytes / kStepsPerL2 / kL2Chunk * kL2Chunk;
  const ScratchBuffer buffer(2 * l2_bytes);
  WorkProfiler profiler("dram_read_bytes",
                        {.warm_up = 0, .min_samples = 1, .max_samples = 1, .min_time_s = 0});
  std::vector<L2Residency> measured;
  for (const auto& [access, name] : kAccesses) {
    for (std::int64_t bytes = 2 * step; bytes <= 2 * l2_bytes; bytes += bytes < l2_bytes ? step : 4 * step) {
      const WorkMeasurement work = profiler.measure(name, [&](CUstream_st* stream) {
        launch_l2_rounds(access, buffer.data(), bytes, kRounds, sms, stream);
      });
      const double again = work.kernel.measured.at("dram_read_bytes") - static_cast<double>(bytes);
      const double missed = again / (static_cast<double>(bytes) * (kRounds - 1));
      measured.push_back({name, bytes, std::clamp(1 - missed, 0.0, 1.0)});
    }
  }
  return measured;
}

}  // namespace tilescope
