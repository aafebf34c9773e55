// SPDX-License-Identifier: Apache-2.0
// The descales of an fp8 problem as tensors, and values stored so that descales restore them.
#pragma once

#include "cpu_ref/numeric/tensor.hpp"

namespace tilescope {

/// Which of a problem's descales are q's, k's or v's.
const Descale& descale_of(const AttentionProblem& problem, TensorName name);

/// (B, Hkv, 1, 1); by blocks (B, H or Hkv, 1, blocks of a head). fp32.
Shape descale_shape(const AttentionProblem& problem, TensorName of);

/// Constants, or random numbers of (seed, tensor, index); empty where all are 1.
/// @throws BadInput where the problem alone does not tell them: descales of data
Tensor make_descales(const AttentionProblem& problem, TensorName of);

/// Stores `values`, any type, as q, k or v: rounded to the problem's element type, and divided before by
/// their descales where these come of them. Makes the descales, unless they are given.
void store_input(TensorSet& tensors, TensorName name, const Tensor& values);

}  // namespace tilescope
