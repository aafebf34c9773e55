// SPDX-License-Identifier: Apache-2.0
// The masks by their definitions, an entry at a time and without the tile schedule.
#pragma once

#include <cstdint>

#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

/// Whether query `query` sees key `key`: the definitions at AttentionProblem and MaskKind, word for word.
/// @param batch_head  batch * heads + head, over query heads
bool mask_allows(const AttentionProblem& problem, std::int64_t batch_head, std::int64_t query,
                 std::int64_t key);

}  // namespace tilescope
