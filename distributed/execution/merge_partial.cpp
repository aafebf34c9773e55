// SPDX-License-Identifier: Apache-2.0
#include "distributed/execution/merge_partial.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tilescope {

void merge_partial(float* out, float* lse, const float* part, float part_lse, std::int64_t head_dim) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  if (part_lse == kNothing) return;
  if (*lse == kNothing) {
    std::copy(part, part + head_dim, out);
    *lse = part_lse;
    return;
  }
  const float larger = std::max(*lse, part_lse);
  const float weight = std::exp(*lse - larger), part_weight = std::exp(part_lse - larger);
  const float sum = weight + part_weight;
  for (std::int64_t i = 0; i < head_dim; ++i) out[i] = (weight * out[i] + part_weight * part[i]) / sum;
  *lse = larger + std::log(sum);
}

}  // namespace tilescope
