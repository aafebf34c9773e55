// SPDX-License-Identifier: Apache-2.0
// FlashAttention-2 (arXiv:2307.08691) on the CPU: Algorithm 1, and Algorithm 2 in three orders.
#pragma once

#include "cpu_ref/launch/tile_observer.hpp"
#include "cpu_ref/numeric/tensor.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Reads q, k, v; allocates and writes out and lse.
/// @throws MachineLacks when memory runs out
void flash2_forward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer);

/// Reads q, k, v, out, lse, dout; allocates and writes dq, dk, dv and the workspaces of options.backward.
/// @throws MachineLacks when memory runs out
void flash2_backward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer);

}  // namespace tilescope
