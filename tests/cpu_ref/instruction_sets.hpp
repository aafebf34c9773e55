// SPDX-License-Identifier: Apache-2.0
// Runs a check on every instruction set that the vector code is compiled for and this machine has.
#pragma once

#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <string>

namespace tilescope::testing {

template <typename Check>
void for_each_instruction_set(Check&& check) {
  const std::int64_t supported = hwy::SupportedTargets();
  const auto use = [](std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().DeInit();
  };
  for (const std::int64_t target :
       {std::int64_t{HWY_AVX3}, std::int64_t{HWY_AVX2}, std::int64_t{HWY_STATIC_TARGET}}) {
    if ((supported & target) == 0 && target != HWY_STATIC_TARGET) continue;
    use(target);
    const std::string instruction_set = hwy::TargetName(target);
    CAPTURE(instruction_set);
    check();
  }
  use(0);  // what the machine has, again
}

}  // namespace tilescope::testing
