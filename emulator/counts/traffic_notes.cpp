// SPDX-License-Identifier: Apache-2.0
// What of the counts rests on a model, in sentences.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/counts/traffic_counter.hpp"

namespace tilescope::gpu::emulator {

void TrafficCounter::add_notes(KernelCounts& counts) const {
  const double hits = counts.metrics.at("l1_load_hit_bytes"), read = counts.metrics.at("sm_l2_read_bytes");
  if (static_cast<double>(counts.least_read_bytes) < read + hits) {
    counts.notes.push_back(fmt::format(
        "modelled: loads of {:.0f} B hit in an L1 of {} KiB, least recently used, that {} CTAs at once of an "
        "SM (by threads, shared memory{}) share{}; {} to {:.0f} B are read, by timing",
        hits, residency_.l1_bytes / 1024, residency_.ctas,
        residency_.registers_known ? " and registers" : "; registers are not known",
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
