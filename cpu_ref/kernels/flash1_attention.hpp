// SPDX-License-Identifier: Apache-2.0
// FlashAttention (arXiv:2205.14135) on the CPU: Algorithms 1, 2 and 4, as printed.
#pragma once

#include "cpu_ref/launch/tile_observer.hpp"
#include "cpu_ref/numeric/tensor.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Reads q, k, v; allocates and writes out, row_max, row_sum and lse. The algorithm knows no lse: it is
/// derived from the other two after the pass, for comparison with other kernels.
/// @throws MachineLacks when memory runs out
void flash1_forward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer);

/// Reads q, k, v, out, row_max, row_sum, dout; allocates and writes dq, dk, dv and dq_accum.
/// @throws MachineLacks when memory runs out
void flash1_backward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer);

}  // namespace tilescope
