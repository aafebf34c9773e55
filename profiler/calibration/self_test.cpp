// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibration/self_test.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "profiler/calibration/kernels.hpp"
#include "profiler/counters/bracketed_counters.hpp"
#include "profiler/driver/runtime_check.hpp"
#include "profiler/driver/scratch_buffer.hpp"
#include "profiler/timing/nvtx_range.hpp"

namespace tilescope {
namespace {

constexpr const char* kMetrics =
    "sm_l2_read_bytes,sm_l2_write_bytes,l2_read_sectors,dram_read_bytes,dram_write_bytes";
constexpr std::int64_t kSectorBytes = 32;

void add_check(SelfTest& test, const CalibrationKernel& kernel, const KernelMeasurement& measured,
               const char* metric, std::int64_t declared) {
  const DeclaredBytes& bytes = kernel.declared;
  const auto moved = static_cast<double>(std::max(bytes.sm_l2_read, bytes.sm_l2_write));
  const double value = measured.measured.at(metric);
  const double unit = std::string_view(metric).ends_with("_sectors") ? kSectorBytes : 1;
  const double deviation = unit * std::abs(value - static_cast<double>(declared)) / moved;
  test.checks.push_back({kernel.name, metric, declared, value, deviation, deviation <= kSelfTestTolerance});
}

}  // namespace

SelfTest run_self_test() {
  const DeviceContext device;
  BracketedCounters counters(CuptiLibrary::load(), device, kMetrics);
  const ScratchBuffer source(kCalibrationBytes), target(kCalibrationBytes);
  for (const ScratchBuffer* buffer : {&source, &target}) {
    check_runtime(cudaMemset(buffer->data(), 0, kCalibrationBytes), "clearing a buffer");
  }
  SelfTest test{device.name(), counters.chip(), device.driver_version(), counters.passes(), {}, {}};
  const int capability = 10 * device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                         device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  for (const CalibrationKernel& kernel : calibration_kernels()) {
    if (capability < kernel.oldest_compute_capability) {
      test.left_out.push_back(kernel.name);
      continue;
    }
    const auto launch = [&](cudaStream_t stream) {
      kernel.launch(source.data(), target.data(), stream);
      check_runtime(cudaGetLastError(), kernel.name.c_str());
    };
    launch(nullptr);  // loads its code, which would be counted
    check_runtime(cudaDeviceSynchronize(), kernel.name.c_str());
    const NvtxRange range(kernel.name.c_str());
    const KernelMeasurement measured = counters.measure(kernel.name, launch);
    add_check(test, kernel, measured, "sm_l2_read_bytes", kernel.declared.sm_l2_read);
    add_check(test, kernel, measured, "sm_l2_write_bytes", kernel.declared.sm_l2_write);
    add_check(test, kernel, measured, "l2_read_sectors",
              kernel.declared.sm_l2_read / kernel.declared.readers / kSectorBytes);
    add_check(test, kernel, measured, "dram_read_bytes", kernel.declared.dram_read);
    add_check(test, kernel, measured, "dram_write_bytes", kernel.declared.dram_write);
  }
  return test;
}

}  // namespace tilescope
