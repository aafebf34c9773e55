// SPDX-License-Identifier: Apache-2.0
// Standard attention's N x N matrices, element by element against fp64: what the states of tiles are for the
// other algorithms.
#pragma once

#include <optional>

#include "cpu_ref/numeric/tensor.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// An element of an N x N matrix that is not what it should be.
struct WrongElement {
  TensorName matrix = TensorName::scores;
  std::int64_t batch = 0, head = 0, query = 0, key = 0;
  double value = 0, expected = 0, tolerance = 0;
};

/// The matrix that the pass stores, as the pass should make it from the tensors that it reads:
/// scores = sign(scale) / sqrt(head_dim) * Q K^T, probs = softmax of scores (times what keeps fp8 in range),
/// dprobs = dO V^T, dscores = P * (dropped dP - delta), each rounded to its type.
/// @param tensors  as the kernel left them
/// @return the first wrong element, tile by tile in row-major order; nothing for other passes
std::optional<WrongElement> first_wrong_element(const TileProgram& program, const TensorSet& tensors);

}  // namespace tilescope
