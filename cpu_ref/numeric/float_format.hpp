// SPDX-License-Identifier: Apache-2.0
// The layouts of the element types narrower than fp32, as data, for the scalar and the vector conversions.
#pragma once

#include <cstdint>

namespace tilescope {

/// Layout of a binary format narrower than fp32: sign, exponent, mantissa from the top.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;         // e4m3 has none: its largest exponent holds numbers, and one NaN
  std::uint32_t max_finite;  // bit pattern of the largest finite value
  std::uint32_t nan;
  bool saturates;  // beyond max_finite: to max_finite, not to infinity

  constexpr bool operator==(const FloatFormat&) const = default;
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  /// What a magnitude beyond max_finite becomes; the pattern after max_finite is infinity.
  constexpr std::uint32_t overflow() const { return saturates ? max_finite : max_finite + 1; }
};

inline constexpr FloatFormat kFp16{5, 10, true, 0x7BFF, 0x7FFF, false};
inline constexpr FloatFormat kBf16{8, 7, true, 0x7F7F, 0x7FFF, false};
inline constexpr FloatFormat kFp8e4m3{4, 3, false, 0x7E, 0x7F, true};
inline constexpr FloatFormat kFp8e5m2{5, 2, true, 0x7B, 0x7F, true};

}  // namespace tilescope
