// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/kernels/math_unit.hpp"

#include <string>

#include "common/errors.hpp"

namespace tilescope {

std::string_view to_string(MathUnit unit) {
  constexpr std::string_view names[] = {"simd", "cuda-cores", "mma.sync", "wgmma"};
  return names[static_cast<std::size_t>(unit)];
}

MathUnit parse_math_unit(std::string_view text) {
  using enum MathUnit;
  for (const MathUnit unit : {simd, cuda_cores, mma_sync, wgmma}) {
    if (text == to_string(unit)) return unit;
  }
  throw BadInput("math_unit", std::string(text), "must be simd, cuda-cores, mma.sync or wgmma");
}

}  // namespace tilescope
