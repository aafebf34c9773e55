// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/spilled_registers.hpp"

#include <algorithm>
#include <cmath>

namespace tilescope {

std::int64_t spilled_write_bytes(const SpilledRegisters& spilled, std::int64_t moved_bytes,
                                 std::int64_t kept_bytes) {
  const double ctas = static_cast<double>(spilled.ctas);
  const double first = std::min(ctas, static_cast<double>(spilled.co_resident_ctas));
  if (first == 0 || spilled.cta_bytes == 0) return 0;
  const double moved_by_a_wave = static_cast<double>(moved_bytes) * first / ctas;
  const double gone = std::min(1.0, moved_by_a_wave / static_cast<double>(kept_bytes));
  return std::llround(static_cast<double>(spilled.cta_bytes) * (first + (ctas - first) * gone));
}

}  // namespace tilescope
