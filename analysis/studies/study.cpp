// SPDX-License-Identifier: Apache-2.0
#include "analysis/studies/study.hpp"

#include "analysis/studies/error_study.hpp"
#include "analysis/studies/holdout.hpp"
#include "analysis/studies/paper_studies.hpp"
#include "analysis/studies/simulations.hpp"
#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

std::vector<StudyTask> passes_study(const Machine& machine) {
  Simulations simulations{machine, true};
  AttentionProblem long_context = preset_problem("long-128k");
  long_context.heads = long_context.heads_kv = 2;  // as many tokens times heads as fa2-16k has
  for (const AttentionProblem& problem : {preset_problem("fa2-16k"), long_context}) {
    for (const Algorithm algorithm : {Algorithm::standard, Algorithm::flash1, Algorithm::flash2}) {
      simulations.add(algorithm, problem, kBoth, usual_tile(algorithm));
    }
    const TileShape tile = usual_tile(Algorithm::flash2);
    simulations.add(Algorithm::flash2, problem, kBackward, tile, BackwardOrder::split);
    simulations.add(Algorithm::flash2, problem, kBackward, tile, BackwardOrder::q_outer);
  }
  return std::move(simulations.tasks);
}

std::vector<StudyTask> seqlen_study(const Machine& machine) {
  Simulations simulations{machine};
  constexpr std::int64_t kShortest = 512, kLongest = 131072;
  constexpr std::int64_t kLongestComparison = 65536;  // where S of the standard algorithm takes 137 GB
  for (std::int64_t seqlen = kShortest; seqlen <= kLongest; seqlen *= 2) {
    AttentionProblem problem = preset_problem("long-128k");
    problem.seqlen_q = problem.seqlen_k = seqlen;
    for (const Algorithm algorithm : {Algorithm::standard, Algorithm::flash1, Algorithm::flash2}) {
      if (algorithm != Algorithm::flash2 && seqlen > kLongestComparison) continue;
      simulations.add(algorithm, problem, kBoth, usual_tile(algorithm));
    }
  }
  return std::move(simulations.tasks);
}

std::vector<StudyTask> block_size_study(const Machine& machine) {
  Simulations simulations{machine};
  for (int block = 16; block <= 256; block *= 2) {
    for (const Algorithm algorithm : {Algorithm::standard, Algorithm::flash1, Algorithm::flash2}) {
      simulations.add(algorithm, preset_problem("fa2-16k"), kBoth, TileShape{block, block});
    }
  }
  return std::move(simulations.tasks);
}

/// By formula alone: a causal mask, on whose diagonal tiles end, and a window whose edge lies inside tiles.
std::vector<StudyTask> diagonal_study(const Machine& machine) {
  Simulations simulations{machine};
  for (const std::int64_t window : {-1, 300}) {
    for (std::int64_t seqlen = 512; seqlen <= 16384; seqlen *= 2) {
      AttentionProblem problem = preset_problem("long-128k");
      problem.seqlen_q = problem.seqlen_k = seqlen;
      problem.causal = true;
      problem.window_left = window;
      for (const int slices : {1, 2, 4, 8}) {
        simulations.count(Algorithm::flash2, problem, kBoth, usual_tile(Algorithm::flash2), slices);
      }
    }
  }
  return std::move(simulations.tasks);
}

constexpr Study kStudies[] = {
    {"passes", "every pass of every algorithm at N = 4K and 128K, with DRAM bytes at every L2 size", "h200",
     passes_study},
    {"seqlen", "bytes against sequence length, N = 512 ... 128K", "h200", seqlen_study},
    {"block-size", "bytes against block size, 16 ... 256 rows", "h200", block_size_study},
    {"paper-figure2", "FlashAttention's Figure 2: GPT-2 medium on an A100", "a100-40gb", figure2_study},
    {kConstantsStudy, "the constants of FlashAttention's Theorems 2 and 5 over M, d and N, by formula",
     "h200", constants_study},
    {kSparsityStudy, "FlashAttention's Proposition 4: bytes against the share of tiles visited, by formula",
     "h200", sparsity_study},
    {kParallelismStudy, "FlashAttention-2's CTA for each tile of Q beside one a head, 1 ... 132 heads",
     "h200", parallelism_study},
    {"diagonal", "what finer parts of tiles on the diagonal save, N = 512 ... 16K, by formula", "h200",
     diagonal_study},
    {"paper-errors", "FlashAttention-3's error experiment, on this machine", "", error_study, error_study_of},
    {"holdout",
     "what is said of passes that --seed draws before they are measured, by the model and its rivals", "h200",
     nullptr, nullptr, holdout_study},
};

}  // namespace

std::span<const Study> studies() { return kStudies; }

const Study& find_study(std::string_view name) { return find_named(kStudies, "study", name); }

}  // namespace tilescope
