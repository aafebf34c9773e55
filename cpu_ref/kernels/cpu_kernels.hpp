// SPDX-License-Identifier: Apache-2.0
// The kernels that run on this CPU, as the registry calls them. Each throws MachineLacks when memory runs
// out.
#pragma once

#include "cpu_ref/launch/tile_observer.hpp"
#include "cpu_ref/numeric/tensor.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

// --- Attention with its N x N matrices in memory: Algorithms 0 and 3 of FlashAttention (arXiv:2205.14135).
// The baseline of the papers, and the yardstick of tolerances.

/// Reads q, k, v; allocates and writes scores, probs, out and lse.
///
/// scores holds Q K^T / sqrt(head_dim), negated when the softmax scale is negative: the scaled scores of the
/// usual scale, and for every scale a range that fp16 holds. probs holds softmax rows, before dropout; for
/// e4m3 they are kept KernelScale::probs_factor times as large.
void standard_forward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer);

/// Reads q, k, v, probs, dout; allocates and writes dprobs, dscores, dq, dk, dv.
void standard_backward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer);

// --- FlashAttention (arXiv:2205.14135) on the CPU: Algorithms 1, 2 and 4, as printed.

/// Reads q, k, v; allocates and writes out, row_max, row_sum and lse. The algorithm knows no lse: it is
/// derived from the other two after the pass, for comparison with other kernels.
void flash1_forward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer);

/// Reads q, k, v, out, row_max, row_sum, dout; allocates and writes dq, dk, dv and dq_accum.
void flash1_backward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer);

// --- FlashAttention-2 (arXiv:2307.08691) on the CPU: Algorithm 1, and Algorithm 2 in three orders.

/// Reads q, k, v; allocates and writes out and lse.
void flash2_forward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer);

/// Reads q, k, v, out, lse, dout; allocates and writes dq, dk, dv and the workspaces of options.backward.
void flash2_backward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer);

}  // namespace tilescope
