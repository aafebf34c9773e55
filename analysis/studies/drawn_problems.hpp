// SPDX-License-Identifier: Apache-2.0
// Problems that nobody chose: drawn from strata by a seed, and what a kernel gives on them beside the best
// other one, by stratum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/records/run_record.hpp"
#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

/// Of 16-bit problems, the same for a seed everywhere. Head dimensions come in turn; lengths are log-uniform
/// from 128 to 48K, mostly no multiples of 64; masks, groups and types as the dice fall; from one tile of
/// work to many for each multiprocessor.
std::vector<AttentionProblem> drawn_problems(std::uint64_t seed, int count);

/// The same of e4m3, to be timed forward: head dimensions 64, 128 and 256 in turn, causal or full, which are
/// those that cuDNN has fp8 attention for.
std::vector<AttentionProblem> drawn_fp8_problems(std::uint64_t seed, int count);

/// The same of few queries and many keys: 200 to 256K log-uniform, up to 256 sequences of at most 8 GB of K
/// and V, groups of 1 to 16; one query or some drafted ones; in part with lengths of their own.
std::vector<AttentionProblem> drawn_decode_problems(std::uint64_t seed, int count);

/// A direction of the problems that have one thing in common.
struct Stratum {
  Direction direction = Direction::forward;
  std::string name;                // "head_dim 96", "groups of 7", "all"
  double mean = 0.0, worst = 0.0;  // of a kernel's rate over its best peer's: geometric mean, least
  std::string worst_problem{};
  int problems = 0;
};
/// Of `kernel`, "all" first, then the worst mean first. Runs without a peer's are left out.
std::vector<Stratum> strata_of(const std::vector<RunEntry>& runs, const std::string& kernel);

}  // namespace tilescope
