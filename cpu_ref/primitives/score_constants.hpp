// SPDX-License-Identifier: Apache-2.0
// Constants of the score formula, for host and device.
#pragma once

#include <limits>
#include <numbers>

namespace tilescope {

/// A masked score: its exponential is 0, and no maximum is smaller.
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
inline constexpr float kLog2E = std::numbers::log2e_v<float>;
/// The least softmax scale in exponents of 2: above 0, so that a masked score times it stays -inf.
inline constexpr float kLeastExponentScale = std::numeric_limits<float>::min();
/// Of the descale of a tile of V, by which O is divided while it is kept in units of that tile: a descale of
/// 0 (a tile of zeros) is taken as this, so that the ratio of two units stays a number and O of the largest
/// elements in range.
inline constexpr float kLeastValueUnit = 1e-20f;

}  // namespace tilescope
