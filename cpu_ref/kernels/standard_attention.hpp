// SPDX-License-Identifier: Apache-2.0
// Attention with its N x N matrices in memory: Algorithms 0 and 3 of FlashAttention (arXiv:2205.14135). The
// baseline of the papers, and the yardstick of tolerances.
#pragma once

#include "cpu_ref/launch/tile_observer.hpp"
#include "cpu_ref/numeric/tensor.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Reads q, k, v; allocates and writes scores, probs, out and lse.
///
/// scores holds Q K^T / sqrt(head_dim), negated when the softmax scale is negative: the scaled scores of the
/// usual scale, and for every scale a range that fp16 holds. probs holds softmax rows, before dropout; for
/// e4m3 they are kept KernelScale::probs_factor times as large.
/// @throws MachineLacks when memory runs out
void standard_forward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer);

/// Reads q, k, v, probs, dout; allocates and writes dprobs, dscores, dq, dk, dv.
/// @throws MachineLacks when memory runs out
void standard_backward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer);

}  // namespace tilescope
