// SPDX-License-Identifier: Apache-2.0
#include "analysis/background_bytes.hpp"

#include <algorithm>
#include <cmath>

namespace tilescope {

std::int64_t background_bytes(const std::vector<BackgroundReads>& measured, double seconds) {
  if (measured.empty()) return 0;
  if (measured.size() == 1 || seconds <= measured.front().seconds) return measured.front().dram_read_bytes;
  auto later =
      std::upper_bound(measured.begin() + 1, measured.end(), seconds,
                       [](double wanted, const BackgroundReads& one) { return wanted < one.seconds; });
  if (later == measured.end()) --later;
  const BackgroundReads& earlier = *(later - 1);
  if (later->seconds <= earlier.seconds) return later->dram_read_bytes;  // measured twice: no line
  const double slope = static_cast<double>(later->dram_read_bytes - earlier.dram_read_bytes) /
                       (later->seconds - earlier.seconds);
  const double bytes = static_cast<double>(earlier.dram_read_bytes) + slope * (seconds - earlier.seconds);
  return std::max<std::int64_t>(0, std::llround(bytes));
}

}  // namespace tilescope
