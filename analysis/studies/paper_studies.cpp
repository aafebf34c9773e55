// SPDX-License-Identifier: Apache-2.0
#include "analysis/studies/paper_studies.hpp"

#include "analysis/studies/simulations.hpp"

namespace tilescope {
namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::standard, Algorithm::flash1, Algorithm::flash2};

AttentionProblem one_head(std::int64_t seqlen, std::int64_t head_dim) {
  AttentionProblem problem;
  problem.seqlen_q = problem.seqlen_k = seqlen;
  problem.head_dim = head_dim;
  problem.dtype = ElementType::fp16;
  return problem;
}

}  // namespace

std::vector<StudyTask> figure2_study(const Machine& machine) {
  Simulations simulations{machine};
  const AttentionProblem& problem = preset_problem("gpt2-medium");
  // One tile as large as the matrices: each operand of a product is read once, as Algorithms 0 and 3 count.
  const int whole = static_cast<int>(problem.seqlen_q);
  simulations.add(Algorithm::standard, problem, kBoth, TileShape{whole, whole});
  const int block_m = static_cast<int>(problem.head_dim);  // Algorithm 1, line 1: Br = min(Bc, d)
  for (const int block_n : {64, 128, 256, 512}) {
    const std::span<const Direction> both = kBoth;
    simulations.add(Algorithm::flash1, problem, both.first(block_n == 256 ? 2 : 1),
                    TileShape{block_m, block_n});
  }
  return std::move(simulations.tasks);
}

std::vector<StudyTask> constants_study(const Machine& machine) {
  Simulations simulations{machine};
  for (const std::int64_t head_dim : {64, 128, 256}) {
    for (std::int64_t seqlen = 1024; seqlen <= 65536; seqlen *= 4) {
      for (std::int64_t elements = 4096; elements <= 262144; elements *= 2) {
        for (const Algorithm algorithm : kAlgorithms) {
          simulations.count(algorithm, one_head(seqlen, head_dim), kBoth,
                            flash1_tile_rule(elements, head_dim));
        }
      }
    }
  }
  return std::move(simulations.tasks);
}

std::vector<StudyTask> sparsity_study(const Machine& machine) {
  Simulations simulations{machine};
  constexpr std::int64_t kSeqlen = 16384, kHeadDim = 64, kElements = 65536;  // 128 KiB
  const TileShape tile = flash1_tile_rule(kElements, kHeadDim);
  for (std::int64_t window = 128; window <= kSeqlen; window *= 2) {
    AttentionProblem problem = one_head(kSeqlen, kHeadDim);
    if (window < kSeqlen) problem.window_left = problem.window_right = window / 2;
    simulations.count(Algorithm::flash1, problem, kBoth, tile);
  }
  return std::move(simulations.tasks);
}

std::vector<StudyTask> parallelism_study(const Machine& machine) {
  Simulations simulations{machine};
  for (const std::int64_t heads : {1, 2, 4, 8, 16, 33, 66, 132}) {
    AttentionProblem problem = one_head(8192, 128);
    problem.heads = problem.heads_kv = heads;
    for (const Algorithm algorithm : {Algorithm::flash1, Algorithm::flash2}) {
      simulations.add(algorithm, problem, kBoth, usual_tile(algorithm));
    }
  }
  return std::move(simulations.tasks);
}

}  // namespace tilescope
