// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibration/l2/l2_probe.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>

#include "profiler/calibration/l2/probe_kernels.hpp"
#include "profiler/driver/device_context.hpp"
#include "profiler/driver/runtime_check.hpp"
#include "profiler/driver/scratch_buffer.hpp"
#include "profiler/timing/nvtx_range.hpp"
#include "profiler/work_profiler.hpp"

namespace tilescope {
namespace {

constexpr int kRounds = 5;
constexpr std::int64_t kRandomPlacesOver = 16;  // times the L2
constexpr int kLatencyLines = 96;
constexpr int kLaunches = 16;
constexpr struct {
  L2Access access;
  const char* name;
  bool at_random;
} kAccesses[] = {{L2Access::read_by_all, kReadByAll, false},
                 {L2Access::read_by_one, kReadByOne, false},
                 {L2Access::reduced_by_one, kReducedByOne, false},
                 {L2Access::read_by_partition, kReadByPartition, false},
                 {L2Access::read_by_all, kReadRandom, true}};

constexpr std::int64_t bytes_of(std::int64_t ids) {
  return ids * static_cast<std::int64_t>(sizeof(std::int32_t));
}

template <typename Value>
std::vector<Value> read_back(const ScratchBuffer& buffer, std::size_t count) {
  std::vector<Value> values(count);
  check_runtime(cudaMemcpy(values.data(), buffer.data(), count * sizeof(Value), cudaMemcpyDeviceToHost),
                "reading what a kernel wrote");
  return values;
}

void write_to(const ScratchBuffer& buffer, const std::vector<std::int32_t>& values) {
  check_runtime(
      cudaMemcpy(buffer.data(), values.data(), values.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice),
      "writing a kernel's table");
}

/// Launches of one CTA an SM.
class OnePerSm {
 public:
  OnePerSm()
      : sms_(device_.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)),
        // All but what the hardware keeps for itself: more than half of an SM's on every chip.
        shared_bytes_(device_.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)),
        ids_(bytes_of(std::int64_t{2} * sms_)) {}

  int sms() const { return sms_; }
  int shared_bytes() const { return shared_bytes_; }

  /// The SM of each of the first CTAs of a launch, one for each SM. @param surplus CTAs behind them, no more
  /// than there are SMs @throws MachineLacks if others came between
  std::vector<int> order(int surplus = 0) const {
    launch_sm_ids(static_cast<std::int32_t*>(ids_.data()), sms_ + surplus, shared_bytes_, nullptr);
    check_runtime(cudaGetLastError(), "one CTA an SM");
    std::vector<int> order = read_back<std::int32_t>(ids_, static_cast<std::size_t>(sms_));
    if (std::set<int>(order.begin(), order.end()).size() != order.size()) {
      throw MachineLacks("an SM was given a second CTA before others had one");
    }
    return order;
  }

 private:
  DeviceContext device_;
  int sms_, shared_bytes_;
  ScratchBuffer ids_;
};

/// Latencies from each SM, in the order of `sms`.
std::vector<std::vector<double>> measure_latencies(const OnePerSm& grid, const std::vector<int>& sms) {
  const ScratchBuffer lines(kLatencyLines * kLatencyStride);
  const ScratchBuffer clocks(bytes_of(kLatencyLines));
  check_runtime(cudaMemset(lines.data(), 0, kLatencyLines * kLatencyStride), "clearing a buffer");
  std::vector<std::vector<double>> latencies;
  for (const int sm : sms) {
    check_runtime(cudaMemset(clocks.data(), 0, kLatencyLines * sizeof(std::uint32_t)), "clearing a buffer");
    launch_atomic_latency(static_cast<std::uint32_t*>(lines.data()), kLatencyLines, sm,
                          static_cast<std::uint32_t*>(clocks.data()), grid.sms(), grid.shared_bytes(),
                          nullptr);
    check_runtime(cudaGetLastError(), "latency of atomics");
    const auto of_sm = read_back<std::uint32_t>(clocks, kLatencyLines);
    if (of_sm.front() == 0) throw MachineLacks("SM " + std::to_string(sm) + " was given no CTA");
    latencies.emplace_back(of_sm.begin(), of_sm.end());
  }
  return latencies;
}

}  // namespace

std::vector<int> measure_partitions_of_sms() {
  const NvtxRange range("partitions of the L2");
  const OnePerSm grid;
  std::vector<int> sms = grid.order();
  std::ranges::sort(sms);
  const std::vector<int> partitions = partitions_from_latencies(measure_latencies(grid, sms));
  std::vector<int> partition_of_sm(static_cast<std::size_t>(sms.back()) + 1, -1);
  for (std::size_t i = 0; i < sms.size(); ++i)
    partition_of_sm[static_cast<std::size_t>(sms[i])] = partitions[i];
  return partition_of_sm;
}

L2Partitions measure_l2_partitions(const std::vector<int>& partition_of_sm) {
  const NvtxRange range("order of SMs");
  const OnePerSm grid;
  std::vector<std::vector<int>> orders;
  for (int launch = 0; launch < kLaunches; ++launch) {
    orders.push_back(grid.order());
    // A grid that fits begins where the one before it began; one that does not fit makes the next begin at
    // another group.
    grid.order(1 + launch * (grid.sms() - 1) / kLaunches);
  }
  return {issue_groups(orders, partition_of_sm)};
}

std::vector<L2Residency> measure_l2_residency(const std::vector<int>& partition_of_sm) {
  const DeviceContext device;
  const std::int64_t l2_bytes = device.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  const int sms = device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  const std::vector<std::int64_t> footprints = residency_footprints(l2_bytes, kL2Chunk);
  const std::int64_t places = kRandomPlacesOver * l2_bytes / kL2Chunk;
  const ScratchBuffer buffer(places * kL2Chunk);
  const std::vector<std::int32_t> chosen = random_places(footprints.back() / kL2Chunk, places);
  const ScratchBuffer chunk_at(bytes_of(std::ssize(chosen)));
  const ScratchBuffer partitions(bytes_of(std::ssize(partition_of_sm)));
  write_to(chunk_at, chosen);
  write_to(partitions, partition_of_sm);
  const bool split = std::ranges::find(partition_of_sm, 1) != partition_of_sm.end();
  WorkProfiler profiler("dram_read_bytes",
                        {.warm_up = 0, .min_samples = 1, .max_samples = 1, .min_time_s = 0});
  std::vector<L2Residency> measured;
  for (const auto& [access, name, at_random] : kAccesses) {
    if (access == L2Access::read_by_partition && !split) continue;
    for (const std::int64_t bytes : footprints) {
      const L2Footprint footprint{buffer.data(), bytes,
                                  at_random ? static_cast<const std::int32_t*>(chunk_at.data()) : nullptr,
                                  static_cast<const std::int32_t*>(partitions.data())};
      const WorkMeasurement work = profiler.measure(
          name, [&](CUstream_st* stream) { launch_l2_rounds(access, footprint, kRounds, sms, stream); });
      const double again = work.kernel.measured.at("dram_read_bytes") - static_cast<double>(bytes);
      const double missed = again / (static_cast<double>(bytes) * (kRounds - 1));
      measured.push_back({name, bytes, std::clamp(1 - missed, 0.0, 1.0)});
    }
  }
  return measured;
}

}  // namespace tilescope
