// SPDX-License-Identifier: Apache-2.0
// What a kernel tells a listener while it runs: the tiles it touches, and a few sums of each tile's state.
#pragma once

#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Sums over one visited tile after its step, enough to see in which quantity two kernels first differ.
/// Quantities that a pass does not compute are 0. Sums skip masked entries and rows beyond the matrix.
struct TileState {
  PassName pass = PassName::forward;
  int batch = 0, head = 0;  // query head
  int m_block = 0, n_block = 0;
  double scores = 0;   // unscaled S, negated where the softmax scale is negative
  double row_max = 0;  // running maximum over the rows that have seen a key (forward)
  double row_sum = 0;  // running sum (forward)
  double probs = 0;  // P as it enters its matmul: un-normalised in a forward pass, exp(S - LSE) in a backward
  double dprobs = 0;    // dP with dropout applied (backward)
  double dscores = 0;   // dS (backward)
  double accum = 0;     // the accumulator that this pass owns: O, dQ (q axis), dK + dV (kv axis)
  double left_out = 0;  // rows that a kernel did not compute here, since they see no key of the tile
  /// Where a kernel's maxima may lag (Rescaling::conditional): what P of each row of the tile is relative to,
  /// for each part of the tile's keys that has maxima of its own; NaN: the row was not computed.
  std::vector<float> maxima;
};

/// Accesses and states of one CTA, in the order in which it made them.
struct CtaLog {
  std::vector<TileAccess> accesses;
  std::vector<TileState> states;
};

/// Logs of one pass, one per CTA; CTAs run concurrently, so each writes only its own.
struct PassLog {
  PassName pass = PassName::forward;
  std::vector<CtaLog> ctas;  // by issue index
  bool has_accesses = true;  // false: the kernel logs the tiles that it visits, not its accesses (GPU)
};

/// Filled by a kernel that is given one; a kernel given none records nothing and pays nothing.
struct TileObserver {
  std::vector<PassLog> passes;
};

}  // namespace tilescope
