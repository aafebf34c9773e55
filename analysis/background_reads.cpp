// SPDX-License-Identifier: Apache-2.0
#include "analysis/background_reads.hpp"

#include <algorithm>
#include <cmath>

namespace tilescope {

std::int64_t background_bytes(const BackgroundReads& measured, double seconds) {
  if (measured.empty()) return 0;
  if (measured.size() == 1 || seconds <= measured.front().first) return measured.front().second;
  auto above = std::upper_bound(
      measured.begin() + 1, measured.end(), seconds,
      [](double wanted, const std::pair<double, std::int64_t>& one) { return wanted < one.first; });
  if (above == measured.end()) --above;
  const auto& [later_s, later_bytes] = *above;
  const auto& [earlier_s, earlier_bytes] = *(above - 1);
  if (later_s <= earlier_s) return later_bytes;  // one duration, measured twice: no line
  const double slope = static_cast<double>(later_bytes - earlier_bytes) / (later_s - earlier_s);
  const double bytes = static_cast<double>(earlier_bytes) + slope * (seconds - earlier_s);
  return std::max<std::int64_t>(0, std::llround(bytes));
}

}  // namespace tilescope
