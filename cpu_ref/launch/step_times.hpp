// SPDX-License-Identifier: Apache-2.0
// When the CTAs of one launch began their steps, as kernels with a step clock note it.
#pragma once

#include <cstdint>
#include <vector>

namespace tilescope {

struct CtaStepTimes {
  int sm = 0;  // that it ran on
  /// When it began its every `StepTimes::every`-th step, in order. [cycles of the SM's clock, modulo 2^32]
  /// Notes of the CTAs of an SM that follow each other here are less than 2^31 cycles apart.
  std::vector<std::uint32_t> begun;
  bool operator==(const CtaStepTimes&) const = default;
};

struct StepTimes {
  int every = 1;
  std::vector<CtaStepTimes> ctas;  // in issue order
  bool operator==(const StepTimes&) const = default;
};

}  // namespace tilescope
