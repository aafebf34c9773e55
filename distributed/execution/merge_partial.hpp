// SPDX-License-Identifier: Apache-2.0
// Attention over two sets of keys from attention over each.
#pragma once

#include <cstdint>

namespace tilescope {

/// Merges the normalised output `part` and its log-sum-exp into one row of running sums, in fp32. Both
/// weights are exponentials of numbers of at most 0, so that nothing overflows; -inf stands for no keys.
void merge_partial(float* out, float* lse, const float* part, float part_lse, std::int64_t head_dim);

}  // namespace tilescope
