// SPDX-License-Identifier: Apache-2.0
// Studies that put a claim of the FlashAttention papers to the test by formula and simulation.
#pragma once

#include <vector>

#include "analysis/studies/study.hpp"

namespace tilescope {

/// FlashAttention's Figure 2: the block sizes of its middle panel, and both directions at what the left panel
/// used.
std::vector<StudyTask> figure2_study(const Machine& machine);

/// Theorems 2 and 5: every algorithm at the tile of FlashAttention's Algorithm 1, line 1, over M, d and N, M
/// < d^2 included. By formula. M [elements] is 4 d block_n, as the rule has it.
inline constexpr std::string_view kConstantsStudy = "constants";
std::vector<StudyTask> constants_study(const Machine& machine);

/// Proposition 4: the share of tiles that are visited, by windows from a tile's width to all keys. By
/// formula.
inline constexpr std::string_view kSparsityStudy = "sparsity";
std::vector<StudyTask> sparsity_study(const Machine& machine);

/// FlashAttention-2, section 3.2: one CTA a head beside one a tile of Q, from one head to as many as an H200
/// has SMs.
inline constexpr std::string_view kParallelismStudy = "parallelism";
std::vector<StudyTask> parallelism_study(const Machine& machine);

}  // namespace tilescope
