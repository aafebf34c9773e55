// SPDX-License-Identifier: Apache-2.0
// Bytes of a step, or of a CTA's ends, between L2 and its SM, and what they cost either. Rates were measured
// on an H200 by kernels that know no attention (reports/prediction/costs-h200.json.gz).
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

// What an SM takes in at most, by copies of 32 KiB and more, where few of them share the L2's rate: 65536
// bytes more take 608 to 614 clocks. [bytes per clock]
inline constexpr double kInBytesPerClock = 107;

/// Bytes of a tile, on the mean over the tiles of the matrix: rows beyond it are not asked for.
struct CrossingBytes {
  double loaded = 0, added = 0, stored = 0;
  double looked_up = 1;  // of the loaded bytes, what keeps L2 as busy, see looked_up_share()

  /// Until threads have added them, pair by pair.
  /// @param of_l2  the SM's share of the L2's rate [bytes per clock]
  double clocks_of_pairs(double of_l2) const;
  double clocks_out() const;
  /// As many bytes that are read would keep L2 busy as long.
  double in_l2() const;
};
CrossingBytes& operator+=(CrossingBytes& sum, const CrossingBytes& other);

CrossingBytes bytes_of(const TileProgram& program, const std::vector<Operand>& operands);

/// What of the bytes that steps load L2 looks up: where the two SMs of a TPC go through the same rows they
/// ask for each line that these have whole together, as CTAs that run at once do by chance. Rows that begin
/// inside a sector keep it busy for longer where the copy engine takes them in.
double looked_up_share(const TileProgram& program, std::int64_t ctas_at_once);

}  // namespace tilescope
