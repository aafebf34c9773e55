// SPDX-License-Identifier: Apache-2.0
// The problems that `verify` and the tests judge kernels on. Lengths come from the tile shape, never typed by
// hand.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope {

struct VerifyCase {
  AttentionProblem problem;
  InputKind inputs = InputKind::normal;
  Direction direction = Direction::backward;  // the deepest: backward includes forward
  TileShape tile;                             // of every pass
  TileOrder order = TileOrder::row_major;
  Scan scan = Scan::ascending;
  int diagonal_slices = 1;
  SplitPolicy splits = {};
  bool pack_gqa = false;
};

enum class SweepSize : std::uint8_t { quick, normal, full };

/// Every length at a tile's edge (1, m - 1, m, m + 1, 2 m + 3, the same for n) under every mask; element
/// types x masks x head groupings x dropout; input kinds, scales, head sizes, rows that see no key, orders
/// and scans; split keys and packed heads.
/// @param head_dim of all but the head sizes
std::vector<VerifyCase> verify_cases(TileShape tile, SweepSize size, std::int64_t head_dim = 16);

/// The kernel's default choices with the orders of the case, and with its tile where the kernel takes it.
ProgramOptions case_options(const VerifyCase& verify_case, const Kernel& kernel);

/// The backward orders in which the kernel is to be judged on this case: all that it has, or the default one
/// where there is nothing to choose.
std::vector<BackwardOrder> backward_orders(const VerifyCase& verify_case, const Kernel& kernel);

}  // namespace tilescope
