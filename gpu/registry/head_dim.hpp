// SPDX-License-Identifier: Apache-2.0
// The head dimensions that kernels are compiled for. Others run padded up to the next one: the padding exists
// on chip only, never in memory.
#pragma once

#include <cstdint>

namespace tilescope {

inline constexpr int kCompiledHeadDims[] = {16, 32, 64, 96, 128, 192, 256};

/// The smallest compiled head dimension that holds `head_dim`; 256 for anything larger.
constexpr int padded_head_dim(std::int64_t head_dim) {
  for (int compiled : kCompiledHeadDims) {
    if (head_dim <= compiled) return compiled;
  }
  return 256;
}

/// Calls `body.template operator()<D>()` with D = padded_head_dim(head_dim).
template <typename Body>
void dispatch_head_dim(std::int64_t head_dim, Body&& body) {
  switch (padded_head_dim(head_dim)) {
    case 16:
      return body.template operator()<16>();
    case 32:
      return body.template operator()<32>();
    case 64:
      return body.template operator()<64>();
    case 96:
      return body.template operator()<96>();
    case 128:
      return body.template operator()<128>();
    case 192:
      return body.template operator()<192>();
    default:
      return body.template operator()<256>();
  }
}

}  // namespace tilescope
