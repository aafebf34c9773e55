// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/kernels/math_unit.hpp"

#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

constexpr std::string_view kUnits[] = {"simd", "cuda-cores", "mma.sync", "wgmma"};

}  // namespace

std::string_view to_string(MathUnit unit) { return kUnits[static_cast<std::size_t>(unit)]; }

MathUnit parse_math_unit(std::string_view text) { return value_named<MathUnit>("math_unit", text, kUnits); }

}  // namespace tilescope
