// SPDX-License-Identifier: Apache-2.0
// Registers that spill: local memory, which no tile program names.
#pragma once

#include <cstdint>

namespace tilescope {

/// What a launch does with the registers that its compiler could not keep. [bytes]
struct SpilledRegisters {
  std::int64_t cta_bytes = 0;  // of a CTA: local memory of a thread times threads
  std::int64_t ctas = 0, co_resident_ctas = 1;
};

/// DRAM writes of spilled registers [bytes].
///
/// A CTA stores them once and those after it on its SM store theirs over them. So each line is written back
/// at least once, when the launch ends, and once more whenever the L2 has taken in as many bytes as it keeps
/// dirty: by the next CTA all of them where a wave of CTAs moves that much, and in proportion where it moves
/// less. Source: counters of gpu:flash2-mma and FlashAttention-2 on H200s (reports/prediction/causes.md).
/// @param moved_bytes  that the launch reads from DRAM and writes there for its tiles
/// @param kept_bytes  that stay dirty in the L2
std::int64_t spilled_write_bytes(const SpilledRegisters& spilled, std::int64_t moved_bytes,
                                 std::int64_t kept_bytes);

}  // namespace tilescope
