// SPDX-License-Identifier: Apache-2.0
// What multiplies the tiles of a kernel: its row of the registry says so, and with it every record.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

enum class MathUnit : std::uint8_t {
  simd,        // of a CPU
  cuda_cores,  // in fp32, whatever the element type
  mma_sync,    // tensor cores, by instructions of a warp (sm_80)
  wgmma,       // tensor cores, by instructions of four warps (sm_90a)
};

/// As records and machine files have it: "simd", "cuda-cores", "mma.sync", "wgmma".
std::string_view to_string(MathUnit unit);
/// @throws BadInput
MathUnit parse_math_unit(std::string_view text);

/// The type whose peak is the ceiling of products of that element type on that unit. Where the unit is not
/// known, and for a program of the CPU's, which stands for its algorithm, it is the element type.
constexpr ElementType product_type(ElementType dtype, std::optional<MathUnit> unit) {
  return unit == MathUnit::cuda_cores ? ElementType::fp32 : dtype;
}

}  // namespace tilescope
