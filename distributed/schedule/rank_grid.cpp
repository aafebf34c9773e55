// SPDX-License-Identifier: Apache-2.0
// What each schedule can split, and the choice between the builders.
#include <numeric>

#include "distributed/schedule/program_builder.hpp"

namespace tilescope {
namespace {

void require(bool ok, const std::string& field, std::int64_t value, const std::string& allowed) {
  if (!ok) throw BadInput(field, std::to_string(value), allowed);
}

void require_no_option(const AttentionProblem& problem) {
  if (problem.windowed()) {
    throw BadInput("window", std::to_string(problem.window_left) + "," + std::to_string(problem.window_right),
                   "must be left out with several GPUs: schedules split causal masks and none");
  }
  if (!problem.key_lengths.empty()) {
    throw BadInput("key_lengths", std::to_string(problem.key_lengths.front()) + ",...",
                   "must be left out with several GPUs: schedules split keys that all are seen");
  }
  require(problem.page_size == 0, "page_size", problem.page_size,
          "must be left out with several GPUs: schedules exchange keys that lie side by side");
  if (problem.kv_dtype) {
    throw BadInput("kv_dtype", std::string(to_string(*problem.kv_dtype)),
                   "must be left out with several GPUs: schedules exchange keys of the queries' type");
  }
  if (problem.mask.any()) {
    throw BadInput("mask", describe(problem.mask),
                   "must be left out with several GPUs: schedules split causal masks and none");
  }
  require(problem.value_dim() == problem.head_dim, "head_dim_v", problem.head_dim_v,
          "must be left out with several GPUs: schedules exchange rows of one length");
  require(!problem.shared_kv, "shared_kv", 1,
          "must be left out with several GPUs: schedules exchange keys and values");
  if (problem.score_mods.any()) {
    throw BadInput("score modifiers", "of" + describe(problem.score_mods),
                   "must be left out with several GPUs: a slice does not know the places of its pairs");
  }
  if (problem.dropout > 0) {
    throw BadInput("dropout", std::to_string(problem.dropout),
                   "must be 0 with several GPUs: a slice does not know the places of its pairs");
  }
  if (is_fp8(problem.dtype)) {
    throw BadInput(
        "dtype", std::string(to_string(problem.dtype)),
        "must be fp32, fp16 or bf16 with several GPUs: partial results would be rounded to 8 bits");
  }
}

/// Ranks of ulysses_ring that share heads: the most that leave a ring.
int most_ulysses(const AttentionProblem& problem, int ranks) {
  const std::int64_t heads = std::gcd(problem.heads, problem.heads_kv);
  for (int u = ranks / 2; u > 1; --u) {
    if (ranks % u == 0 && heads % u == 0) return u;
  }
  return 1;
}

RankGrid two_dimensional(const AttentionProblem& problem, const DistributedOptions& options) {
  const bool given = options.ulysses > 0;
  const int ulysses = given ? options.ulysses : most_ulysses(problem, options.ranks);
  require(options.ranks % ulysses == 0, "ulysses", ulysses,
          "must divide gpus = " + std::to_string(options.ranks));
  const std::string allowed =
      "ulysses-ring needs gpus = ulysses * ring, both at least 2, where ulysses divides heads = " +
      std::to_string(problem.heads) + " and heads_kv = " + std::to_string(problem.heads_kv);
  const bool two = ulysses > 1 && ulysses < options.ranks;
  if (given) require(two, "ulysses", ulysses, allowed);
  require(two, "gpus", options.ranks, allowed);
  return {ulysses, options.ranks / ulysses, Sharding::zigzag};
}

RankGrid grid_of(const AttentionProblem& problem, const DistributedOptions& options) {
  switch (options.schedule) {
    case LinkSchedule::ring:
      return {1, options.ranks, Sharding::contiguous};
    case LinkSchedule::striped:
      return {1, options.ranks, Sharding::striped};
    case LinkSchedule::zigzag:
    case LinkSchedule::all_gather:
    case LinkSchedule::all_gather_heads:
      return {1, options.ranks, Sharding::zigzag};
    case LinkSchedule::ulysses:
    case LinkSchedule::ulysses_heads:
      return {options.ranks, 1, Sharding::contiguous};
    case LinkSchedule::ulysses_ring:
      return two_dimensional(problem, options);
  }
  throw BadInput("schedule", "unknown", "must be one of `tilescope list schedules`");
}

}  // namespace

RankGrid rank_grid(const AttentionProblem& problem, const DistributedOptions& options) {
  validate(problem);
  require(options.ranks >= 1 && options.ranks <= kMostRanks, "gpus", options.ranks,
          "must lie in 1 ... " + std::to_string(kMostRanks));
  require_no_option(problem);
  const std::string name(to_string(options.schedule));
  require(options.ulysses == 0 || options.schedule == LinkSchedule::ulysses_ring, "ulysses", options.ulysses,
          "must be left out with " + name + "; ulysses-ring takes it");
  const RankGrid grid = grid_of(problem, options);
  const std::string sharing =
      "must be a multiple of the " + std::to_string(grid.ulysses) + " GPUs that share heads in " + name;
  constexpr const char* kOthers = "zigzag and all-gather, which share tokens, take any number";
  require(problem.heads % grid.ulysses == 0, "heads", problem.heads, sharing + "; " + kOthers);
  require(problem.heads_kv % grid.ulysses == 0, "heads_kv", problem.heads_kv,
          sharing + ": heads of K and V are not replicated; " + kOthers);
  const int chunks = options.ranks * (grid.sharding == Sharding::zigzag ? 2 : 1);
  const std::string lengths = "must be at least " + std::to_string(chunks) + ": " + name + " on " +
                              std::to_string(options.ranks) + " GPUs cuts a sequence into so many chunks";
  require(problem.seqlen_q >= chunks, "seqlen_q", problem.seqlen_q, lengths);
  require(problem.seqlen_k >= chunks, "seqlen_k", problem.seqlen_k, lengths);
  return grid;
}

DistributedProgram build_distributed(const AttentionProblem& problem, Direction direction,
                                     const DistributedOptions& options) {
  const RankGrid grid = rank_grid(problem, options);
  return gathers_keys(options.schedule) ? build_all_gather(problem, direction, options, grid)
                                        : build_ring(problem, direction, options, grid);
}

}  // namespace tilescope
