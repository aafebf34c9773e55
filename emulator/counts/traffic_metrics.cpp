// SPDX-License-Identifier: Apache-2.0
// The sums of a launch, by the profiler's names, and what of them rests on a model, in sentences.
#include <fmt/format.h>

#include <algorithm>

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

void TrafficCounter::add_notes(KernelCounts& counts) const {
  const double hits = counts.metrics.at("l1_load_hit_bytes"), read = counts.metrics.at("sm_l2_read_bytes");
  if (static_cast<double>(counts.least_read_bytes) < read + hits) {
    counts.notes.push_back(fmt::format(
        "modelled: loads of {:.0f} B hit in an L1 of {} KiB, least recently used, that {} of an SM (by "
        "threads, "
        "shared memory{}) {}{}; {} to {:.0f} B are read, by timing",
        hits, residency_.l1_bytes / 1024,
        residency_.ctas == 1 ? "one CTA at a time" : fmt::format("{} CTAs at once", residency_.ctas),
        residency_.registers_known ? " and registers" : "; registers are not known",
        residency_.ctas == 1 ? "has" : "share",
        kept_fetches_ > kMostKeptFetches ? ", each for itself, as they load too much" : "",
        counts.least_read_bytes, read + hits));
  }
  if (races_ && !accesses_)
    counts.notes.push_back("races between CTAs were not looked for: the buffers are too large");
  const double merged = counts.metrics.at("merged_store_bytes");
  const auto least = static_cast<double>(counts.least_write_bytes);
  const auto stores =
      std::ranges::count_if(total_, [](const SiteCounts& site) { return site.store_sectors > 0; });
  if (const double written = counts.metrics.at("sm_l2_write_bytes"); least < written + merged) {
    counts.notes.push_back(fmt::format(
        "modelled: stores cover sectors in part, of which L1 sends those as one that arrive in a "
        "row{}; {:.0f} to {:.0f} B are written, by timing",
        store_runs_known_ || stores <= 1 ? "" : " (how ptxas places them is not known: as if all did)", least,
        written + merged));
  }
}

}  // namespace tilescope::gpu::emulator
