// SPDX-License-Identifier: Apache-2.0
// The hierarchical roofline as data: one arithmetic intensity for each memory boundary, and what they allow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/machine.hpp"

namespace tilescope {

enum class Boundary : std::uint8_t { sm_l2, dram };
std::string_view to_string(Boundary boundary);  // "SM<->L2", "DRAM"

/// One kernel at one boundary.
struct RooflinePoint {
  Boundary boundary = Boundary::dram;
  double flops_per_byte = 0;                         // arithmetic intensity; infinite when no byte crosses
  std::optional<double> bandwidth_flops_per_second;  // intensity times bandwidth; absent where unknown
};

/// min(peak, intensity * bandwidth) over all boundaries with a known bandwidth (Williams, Waterman, Patterson
/// 2009; one intensity a level: Yang, Kurth, Williams).
struct Roofline {
  std::vector<RooflinePoint> points;
  std::optional<double> peak_flops_per_second;  // absent where the chip lacks the element type
  std::optional<double> attainable_flops_per_second;
  std::string limit;  // "fp16 peak", "SM<->L2 bandwidth" or "DRAM bandwidth"; "" when nothing is known

  /// The least time that the ceilings allow for `flops`. [seconds]
  std::optional<double> least_seconds(std::int64_t flops) const;
};

/// @param flops useful work, by whatever convention the caller states
/// @param sm_l2_bytes, dram_bytes reads and writes together; absent where not known
Roofline roofline(std::int64_t flops, std::optional<std::int64_t> sm_l2_bytes,
                  std::optional<std::int64_t> dram_bytes, const Machine& machine, ElementType dtype);

}  // namespace tilescope
