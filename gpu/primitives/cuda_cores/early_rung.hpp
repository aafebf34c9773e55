// SPDX-License-Identifier: Apache-2.0
// What the rungs before FlashAttention-2 can, both alike. Plain C++.
#pragma once

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

  static constexpr int padded_dim(std::int64_t head_dim) {
    return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
  }
};

}  // namespace tilescope
