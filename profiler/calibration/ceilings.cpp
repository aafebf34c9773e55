// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibration/ceilings.hpp"

#include <cuda_runtime.h>

#include <bit>
#include <functional>

#include "profiler/calibration/kernels.hpp"
#include "profiler/calibration/l2/l2_probe.hpp"
#include "profiler/calibration/matrix_product.hpp"
#include "profiler/driver/runtime_check.hpp"
#include "profiler/driver/scratch_buffer.hpp"
#include "profiler/timing/cold_timer.hpp"
#include "profiler/timing/nvtx_range.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kStreamBytes = std::int64_t{2} << 30;  // many times any L2
constexpr std::int64_t kMatrixSize = 8192;
constexpr int kL2Fraction =
    4;  // of L2 that is read at most: all of it stays there, on both sides of a split L2

class Measuring {
 public:
  explicit Measuring(const DeviceContext& device) : timer_(device) {}

  /// @param amount bytes or operations of one run of `work`
  void add(const std::string& name, const std::string& unit, double amount, const std::string& method,
           const std::function<void(CUstream)>& work) {
    TimerOptions options;
    options.l2 = L2State::warm;
    options.min_samples = 20;
    options.max_samples = 200;
    options.time_limit_s = 2;
    options.least_clock = 0;  // what power allows is part of what the device can do
    const NvtxRange range(name.c_str());
    const TimedSamples timed = timer_.time(work, options);
    check_runtime(cudaGetLastError(), name.c_str());
    ceilings_.push_back({name, unit, amount / timed.min_s(), amount / timed.median_s(), timed.noise,
                         timed.mean_sm_clock_hz, method});
  }

  std::vector<MeasuredCeiling> take() { return std::move(ceilings_); }

 private:
  ColdTimer timer_;
  std::vector<MeasuredCeiling> ceilings_;
};

void measure_dram(Measuring& measuring, const ScratchBuffer& source, const ScratchBuffer& target) {
  const auto bytes = static_cast<double>(kStreamBytes);
  measuring.add("dram_read", "byte/s", bytes, "16-byte loads of 2 GiB", [&](CUstream stream) {
    launch_stream_read(source.data(), target.data(), kStreamBytes, stream);
  });
  measuring.add("dram_write", "byte/s", bytes, "16-byte stores of 2 GiB",
                [&](CUstream stream) { launch_stream_write(target.data(), kStreamBytes, stream); });
  measuring.add("dram_copy", "byte/s", 2 * bytes, "cudaMemcpyAsync of 2 GiB, read and written bytes",
                [&](CUstream stream) {
                  cudaMemcpyAsync(target.data(), source.data(), kStreamBytes, cudaMemcpyDeviceToDevice,
                                  stream);
                });
}

void measure_chip(Measuring& measuring, const DeviceContext& device, const ScratchBuffer& source,
                  const ScratchBuffer& target) {
  const int sms = device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  const std::int64_t l2_bytes = device.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  const auto share =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(l2_bytes / kL2Fraction)));
  const auto amount = [](std::int64_t moved) { return static_cast<double>(moved); };
  measuring.add("sm_l2_read", "byte/s",
                amount(launch_l2_read(source.data(), target.data(), share, sms, nullptr)),
                "16-byte loads past L1, every SM the same share of L2 again and again",
                [&](CUstream stream) { launch_l2_read(source.data(), target.data(), share, sms, stream); });
  measuring.add("shared_read", "byte/s", amount(launch_shared_read(target.data(), sms, nullptr)),
                "16-byte loads from shared memory without bank conflicts",
                [&](CUstream stream) { launch_shared_read(target.data(), sms, stream); });
  measuring.add("fp32", "flop/s", amount(launch_fp32(target.data(), sms, nullptr)),
                "independent chains of multiply-adds on the CUDA cores",
                [&](CUstream stream) { launch_fp32(target.data(), sms, stream); });
}

void measure_tensor(Measuring& measuring, const ScratchBuffer& source, const ScratchBuffer& target,
                    std::vector<std::string>& left_out) {
  const struct {
    const char* name;
    MatrixType type;
  } kinds[] = {{"fp16", MatrixType::fp16}, {"bf16", MatrixType::bf16}, {"fp8e4m3", MatrixType::fp8e4m3}};
  for (const auto& kind : kinds) {
    try {
      const MatrixProduct product(kind.type, kMatrixSize);
      const char* b = static_cast<const char*>(source.data()) + kStreamBytes / 2;
      measuring.add(kind.name, "flop/s", product.flops(), "cuBLASLt product of 8192 x 8192 matrices",
                    [&](CUstream stream) { product.launch(source.data(), b, target.data(), stream); });
    } catch (const MachineLacks& reason) {
      left_out.push_back(std::string(kind.name) + ": " + reason.what());
    }
  }
}

void measure_rates(const DeviceContext& device, Ceilings& result) {
  const ScratchBuffer source(kStreamBytes), target(kStreamBytes);
  for (const ScratchBuffer* buffer : {&source, &target}) launch_fill(buffer->data(), kStreamBytes, nullptr);
  Measuring measuring(device);
  measure_dram(measuring, source, target);
  measure_chip(measuring, device, source, target);
  measure_tensor(measuring, source, target, result.left_out);
  result.ceilings = measuring.take();
}

void add_or_leave_out(const std::string& what, std::vector<std::string>& left_out,
                      const std::function<void()>& measure) {
  try {
    measure();
  } catch (const MachineLacks& reason) {
    left_out.push_back(what + ": " + reason.what());
  }
}

}  // namespace

Ceilings measure_ceilings(CeilingChoice choice) {
  const DeviceContext device;
  Ceilings result;
  result.device = device.name();
  result.architecture = "sm_" +
                        std::to_string(device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)) +
                        std::to_string(device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  result.driver = device.driver_version();
  result.l2_bytes = device.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  if (choice == CeilingChoice::links) {
    result.links = measure_links();
    return result;
  }
  measure_rates(device, result);
  std::vector<int> partition_of_sm;
  add_or_leave_out("partitions of the L2", result.left_out, [&] {
    partition_of_sm = measure_partitions_of_sms();
    result.l2_partitions = measure_l2_partitions(partition_of_sm);
  });
  add_or_leave_out("what L2 keeps", result.left_out,
                   [&] { result.l2 = measure_l2_residency(partition_of_sm); });
  add_or_leave_out("noise floor", result.left_out, [&] { result.noise_floor = measure_noise_floor(); });
  add_or_leave_out("links", result.left_out, [&] { result.links = measure_links(); });
  return result;
}

}  // namespace tilescope
