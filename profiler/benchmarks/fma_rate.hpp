// SPDX-License-Identifier: Apache-2.0
// What the arithmetic units of this CPU allow a matrix product at most.
#pragma once

namespace tilescope {

/// Elements of the widest fp32 vectors that this CPU multiplies and adds in one instruction: 16, 8, or 1
/// where it is not known to have any.
int fma_lanes();

/// Multiply-adds that `threads` threads get done side by side without touching memory, 2 FLOP each. 0 where
/// fma_lanes() is 1. Takes some 50 ms. [FLOP/s]
double measured_fma_rate(int threads);

}  // namespace tilescope
