// SPDX-License-Identifier: Apache-2.0
// What of a GPU decides whether a kernel's CTAs can run on it at all.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace tilescope {

struct Chip {
  int compute_capability = 0;  // 90: sm_90
  std::int64_t shared_bytes_per_cta = 0;
  std::string name() const { return "sm_" + std::to_string(compute_capability); }
};

/// CUDA C++ Programming Guide, table of technical specifications per compute capability.
inline constexpr Chip kSm80{80, 163 * 1024}, kSm86{86, 99 * 1024}, kSm87{87, 163 * 1024},
    kSm89{89, 99 * 1024}, kSm90{90, 227 * 1024};
inline constexpr Chip kChips[] = {kSm80, kSm86, kSm87, kSm89, kSm90};

/// The first compute capability that converts fp8 (PTX ISA, cvt with .e4m3x2).
inline constexpr int kFirstWithFp8 = 89;

/// The compute capabilities that a kernel's instructions exist on, first and last.
struct ChipRange {
  int first = 80;
  int last = std::numeric_limits<int>::max();

  constexpr bool has(int compute_capability) const {
    return first <= compute_capability && compute_capability <= last;
  }
};

}  // namespace tilescope
