// SPDX-License-Identifier: Apache-2.0
// Numbers by which problems are drawn, the same for a seed everywhere.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cpu_ref/numeric/philox.hpp"

namespace tilescope {

/// Those of one problem, one after the other.
class Dice {
 public:
  Dice(std::uint64_t seed, int problem) : seed_(seed), problem_(static_cast<std::uint32_t>(problem)) {}
  /// In [0, 1).
  double uniform() { return philox4x32(seed_, {{problem_, rolls_++, 0u, 0u}}).x[0] * 0x1p-32; }
  std::int64_t log_uniform(double least, double most) {
    return std::llround(least * std::pow(most / least, uniform()));
  }
  template <typename Value, std::size_t kCount>
  Value one_of(const Value (&values)[kCount]) {
    return values[static_cast<std::size_t>(uniform() * kCount)];
  }

 private:
  std::uint64_t seed_;
  std::uint32_t problem_, rolls_ = 0;
};

}  // namespace tilescope
