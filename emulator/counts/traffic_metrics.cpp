// SPDX-License-Identifier: Apache-2.0
// The sums of a launch, by the profiler's names.
#include "emulator/counts/traffic_counter.hpp"

namespace tilescope::gpu::emulator {

void TrafficCounter::add_metrics(KernelCounts& counts, const Report& report) const {
  SiteCounts sum;
  std::uint64_t stored = 0;
  for (std::size_t i = 0; i < total_.size(); ++i) {
    if (sites_[i].route == Route::constant) continue;
    sum.add(total_[i]);
    if (total_[i].store_sectors > 0) stored += total_[i].asked_bytes;
  }
  const auto bytes_of = [](std::uint64_t sectors) { return static_cast<double>(sectors * kSectorBytes); };
  const auto sectors_in = [](std::uint64_t bytes) { return static_cast<double>(bytes / kSectorBytes); };
  counts.least_read_bytes = sum.read_bytes() + sum.l1_hits * kSectorBytes - sum.l1_again * kSectorBytes;
  counts.least_write_bytes =
      sum.write_bytes() - (sum.merged_sectors - sum.least_sectors_stored) * kSectorBytes;
  counts.metrics = {
      {"sm_l2_read_bytes", static_cast<double>(sum.read_bytes())},
      {"sm_l2_write_bytes", static_cast<double>(sum.write_bytes())},
      {"l2_read_sectors",
       sectors_in((sum.read_sectors * kSectorBytes) + sum.engine_read_bytes - sum.engine_again_bytes)},
      {"l2_write_sectors", static_cast<double>(sum.merged_sectors) + sectors_in(sum.engine_write_bytes)},
      {"l2_atomic_sectors", static_cast<double>(sum.atomic_sectors)},
      {"l2_reduction_sectors",
       static_cast<double>(sum.reduced_sectors) + sectors_in(sum.engine_reduced_bytes)},
      {"global_store_bytes", bytes_of(sum.store_sectors)},
      {"merged_store_bytes", bytes_of(sum.store_sectors - sum.merged_sectors)},
      {"stored_data_bytes", static_cast<double>(stored)},
      {"tma_store_bytes", static_cast<double>(sum.engine_write_bytes)},
      {"reduction_bytes", bytes_of(sum.reduced_sectors) + static_cast<double>(sum.engine_reduced_bytes)},
      {"atomic_write_bytes", bytes_of(sum.atomic_sectors)},
      {"atomic_read_bytes", bytes_of(sum.atomic_sectors)},
      {"multicast_read_bytes", static_cast<double>(sum.engine_again_bytes)},
      {"l1_load_hit_bytes", bytes_of(sum.l1_hits)},
      {"shared_wavefronts", static_cast<double>(sum.wavefronts)},
      {"warp_instructions", static_cast<double>(report.steps)},
      {"asking_instructions", static_cast<double>(report.asking_steps)},
  };
}

}  // namespace tilescope::gpu::emulator
