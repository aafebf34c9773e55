// SPDX-License-Identifier: Apache-2.0
// What the rungs before FlashAttention-2 can, both alike. Plain C++.
#pragma once

#include <algorithm>
#include <vector>

#include "gpu/registry/asked_by.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

struct EarlyRung {
  /// Head dimensions that the kernels are compiled for: a baseline is worth three, not seven.
  static constexpr int kHeadDims[] = {64, 128, 256};
  static constexpr FeatureSet kFeatures{Feature::fp32,     Feature::fp16,         Feature::bf16,
                                        Feature::causal,   Feature::window,       Feature::grouped_heads,
                                        Feature::dropout,  Feature::signed_scale, Feature::key_padding,
                                        Feature::bnhd_rows};
  static constexpr Capabilities can{.forward = kFeatures, .backward = kFeatures, .head_dims = kHeadDims};
  static constexpr MathUnit math_unit = MathUnit::cuda_cores;
  static constexpr ChipRange chips{.first = 80};
  static std::vector<BackwardOrder> backward_orders() { return {}; }

  /// Tiles are loaded by lanes that take four elements each, a row of them before the next one; O by eight
  /// lanes a row (DeltaRows). LSE and delta come by four numbers where each head's begin at 16 bytes.
  static std::vector<Boxes> boxes(const TileProgram& program) {
    using enum TensorName;
    const AttentionProblem& problem = program.problem;
    constexpr int kLanesOfOut = 8, kRowsOfOut = 4;
    const int element = static_cast<int>(element_bytes(problem.dtype));
    const int row_bytes = element * static_cast<int>(problem.head_dim), quad_bytes = 4 * element;
    std::vector<Boxes> all;
    const auto add = [&](TensorName tensor, int rows, int row_part) {
      const int piece = row_bytes <= row_part ? rows * row_bytes : row_part;
      all.push_back({.tensor = tensor, .rows = rows, .panel_bytes = piece, .asked_by = AskedBy::pieces});
    };
    if (program.phases.empty() || problem.head_dim % 4 != 0 || !problem.key_lengths.empty()) return all;
    const int lanes = std::min(32, padded_dim(problem.head_dim) / 4);
    for (const TensorName tensor : {q, k, v, dout}) add(tensor, 32 / lanes, lanes * quad_bytes);
    add(out, kRowsOfOut, kLanesOfOut * quad_bytes);
    for (const TensorName numbers : {lse, delta}) all.push_back(copies_or_pieces(problem, numbers));
    // A thread of 256 has two rows of small tiles of scores, and loads the m and l of both at once, or of
    // four.
    const bool forward = program.name == PassName::forward;
    const int run = forward && program.tile.block_m * program.tile.block_n <= 8 * 256 ? 2 : 4;
    for (const TensorName numbers : {row_max, row_sum}) {
      all.push_back({.tensor = numbers,
                     .rows = run,
                     .panel_bytes = 4 * run,
                     .asked_by = forward ? AskedBy::aligned_runs : AskedBy::aligned_copies});
    }
    return all;
  }

  static constexpr int padded_dim(std::int64_t head_dim) {
    return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
  }
};

}  // namespace tilescope
