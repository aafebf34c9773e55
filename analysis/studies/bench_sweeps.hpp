// SPDX-License-Identifier: Apache-2.0
// Named lists of problems for `tilescope bench --sweep`, each with the kernels that it is meant for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

/// Of a list that is drawn, unless --count says otherwise.
inline constexpr int kDrawnProblems = 60;

struct BenchSweep {
  std::string_view name;
  std::string_view summary;
  std::vector<AttentionProblem> (*problems)();
  std::vector<std::string> kernels;  // what is timed unless others are named; none: the GPU's ladder
  /// By seed and count, where a list is drawn.
  std::vector<AttentionProblem> (*draw)(std::uint64_t, int) = nullptr;
};

std::span<const BenchSweep> bench_sweeps();

/// @throws BadInput naming the nearest
const BenchSweep& find_bench_sweep(std::string_view name);

/// FlashAttention-2's benchmark problem (arXiv:2307.08691, section 4.1): 16384 tokens a batch, hidden size
/// 2048.
AttentionProblem flash2_benchmark_problem(std::int64_t seqlen, std::int64_t head_dim, ElementType dtype,
                                          bool causal);

}  // namespace tilescope
