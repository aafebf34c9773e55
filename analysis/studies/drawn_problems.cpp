// SPDX-License-Identifier: Apache-2.0
#include "analysis/studies/drawn_problems.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "analysis/studies/dice.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kDrawnHeadDims[] = {64, 72, 80, 96, 112, 128, 160, 192, 224, 256};
constexpr std::int64_t kShortest = 128, kLongest = 48 << 10;
constexpr double kMostFlops = 8e12;  // forward: a few milliseconds
constexpr std::int64_t kMostHeads = 2048;

AttentionProblem draw_of(std::int64_t head_dim, Dice dice) {
  AttentionProblem problem{.head_dim = head_dim};
  problem.dtype = dice.uniform() < 0.5 ? ElementType::fp16 : ElementType::bf16;
  problem.seqlen_k = dice.log_uniform(kShortest, kLongest);
  if (dice.uniform() < 0.15) problem.seqlen_k = (problem.seqlen_k + 63) / 64 * 64;
  problem.seqlen_q = problem.seqlen_k;
  const double kind = dice.uniform();
  if (kind < 0.45) {
    problem.causal = true;
  } else if (kind < 0.75) {  // full
  } else if (kind < 0.88) {
    problem.window_left =
        dice.log_uniform(64, std::max<double>(128, 0.5 * static_cast<double>(problem.seqlen_k)));
    problem.window_right = dice.uniform() < 0.7 ? 0 : problem.window_left;
  } else {  // cross-attention with short queries
    problem.seqlen_q =
        dice.log_uniform(16, std::max<double>(32, 0.25 * static_cast<double>(problem.seqlen_k)));
    problem.causal = dice.uniform() < 0.3;
  }
  const std::int64_t group = dice.one_of({1, 1, 1, 2, 4, 8, 7});
  const std::int64_t tiles = dice.log_uniform(4, 8000), a_head = (problem.seqlen_q + 127) / 128;
  const double flops_of_head =
      4.0 * static_cast<double>(problem.seqlen_q * problem.seqlen_k * problem.head_dim);
  const auto most = static_cast<std::int64_t>(kMostFlops / flops_of_head);
  const std::int64_t groups =
      std::clamp<std::int64_t>(std::min({tiles / a_head, most, kMostHeads}) / group, 1, kMostHeads);
  problem.heads_kv = std::clamp<std::int64_t>(dice.log_uniform(1, 32), 1, groups);
  problem.heads = problem.heads_kv * group;
  problem.batch = groups / problem.heads_kv;
  validate(problem);
  return problem;
}

template <std::size_t kCount>
std::int64_t in_turn(const std::int64_t (&values)[kCount], int index) {
  return values[static_cast<std::size_t>(index) % kCount];
}

AttentionProblem draw(std::uint64_t seed, int index) {
  return draw_of(in_turn(kDrawnHeadDims, index), Dice(seed, index));
}

constexpr std::int64_t kFp8HeadDims[] = {64, 128, 256};
constexpr int kFp8Problems = 1 << 21;  // the first number of theirs: other dice than those of the others

AttentionProblem draw_fp8(std::uint64_t seed, int index) {
  AttentionProblem problem = draw_of(in_turn(kFp8HeadDims, index), Dice(seed, kFp8Problems + index));
  problem.dtype = ElementType::fp8e4m3;
  problem.window_left = problem.window_right = -1;
  if (problem.seqlen_q != problem.seqlen_k) problem.causal = false;
  return problem;
}

constexpr std::int64_t kFewestKeys = 200, kMostKeys = 256 << 10, kMostSequences = 256;
constexpr std::int64_t kMostKvBytes = 8'000'000'000;  // two milliseconds of an H200's memory
constexpr int kDecodeProblems = 1 << 20;  // the first number of theirs: other dice than those above

AttentionProblem draw_decode(std::uint64_t seed, int index) {
  Dice dice(seed, kDecodeProblems + index);
  AttentionProblem problem{.seqlen_q = 1, .head_dim = index % 2 == 0 ? 128 : 64};
  problem.dtype = dice.uniform() < 0.5 ? ElementType::fp16 : ElementType::bf16;
  problem.seqlen_k = dice.log_uniform(kFewestKeys, kMostKeys);
  problem.heads_kv = dice.one_of({1, 2, 4, 8, 8, 16});
  problem.heads = problem.heads_kv * dice.one_of({1, 2, 4, 5, 8, 16});
  const std::int64_t sequence_bytes =
      2 * element_bytes(problem.dtype) * problem.heads_kv * problem.seqlen_k * problem.head_dim;
  problem.batch = std::min(dice.log_uniform(1, kMostSequences), kMostKvBytes / sequence_bytes);
  if (dice.uniform() < 0.2) problem.seqlen_q = dice.one_of({2, 3, 4});
  if (problem.batch > 1 && dice.uniform() < 0.4) {
    for (std::int64_t entry = 1; entry < problem.batch; ++entry) {
      problem.key_lengths.push_back(dice.log_uniform(kFewestKeys, static_cast<double>(problem.seqlen_k)));
    }
    problem.key_lengths.push_back(problem.seqlen_k);
  }
  if (dice.uniform() < 0.5) problem.page_size = dice.one_of({16, 32, 64, 128, 256});
  // Where lengths differ a causal mask ends with the longest, and that of peers with each sequence.
  problem.causal = problem.seqlen_q > 1 && problem.key_lengths.empty();
  validate(problem);
  return problem;
}

std::vector<AttentionProblem> drawn(AttentionProblem (*draw_one)(std::uint64_t seed, int index),
                                    std::uint64_t seed, int count) {
  std::vector<AttentionProblem> problems;
  for (int i = 0; i < count; ++i) problems.push_back(draw_one(seed, i));
  return problems;
}

std::string length_class(std::int64_t keys) {
  return keys < 1024 ? "N < 1K" : keys < 4096 ? "N 1K ... 4K" : keys < 16384 ? "N 4K ... 16K" : "N >= 16K";
}

/// What the problem has in common with others.
std::vector<std::string> classes_of(const AttentionProblem& p) {
  const std::int64_t tiles = p.batch * p.heads * ((p.seqlen_q + 127) / 128);
  std::vector<std::string> classes{"all",
                                   fmt::format("head_dim {}", p.head_dim),
                                   length_class(p.seqlen_k),
                                   !p.key_lengths.empty()     ? "lengths of their own"
                                   : p.seqlen_q != p.seqlen_k ? "cross"
                                   : p.windowed()             ? "window"
                                   : p.causal                 ? "causal"
                                                              : "full",
                                   p.group_size() > 1 ? "groups" : "as many key as query heads",
                                   tiles < 132 ? "tiles of 128 queries < 132" : "tiles of 128 queries >= 132",
                                   std::string(to_string(p.dtype))};
  if (p.page_size > 0) classes.push_back("pages");
  return classes;
}

struct Ratio {
  AttentionProblem problem;
  double of_best = 0.0;
};

std::vector<Ratio> ratios_of(const std::vector<RunEntry>& runs, const std::string& kernel,
                             Direction direction) {
  std::vector<Ratio> ratios;
  for (const RunEntry& run : runs) {
    const PassRecord* own = run.kernel == kernel ? run.timed_pass(direction) : nullptr;
    if (!own) continue;
    double best_s = 0.0;
    for (const RunEntry& other : runs) {
      const bool beside = !other.algorithm && other.problem == run.problem;
      const PassRecord* pass = beside ? other.timed_pass(direction) : nullptr;
      if (pass && (best_s == 0.0 || pass->time->median_s < best_s)) best_s = pass->time->median_s;
    }
    if (best_s > 0.0) ratios.push_back({run.problem, best_s / own->time->median_s});
  }
  return ratios;
}

}  // namespace

std::vector<AttentionProblem> drawn_problems(std::uint64_t seed, int count) {
  return drawn(draw, seed, count);
}

std::vector<AttentionProblem> drawn_fp8_problems(std::uint64_t seed, int count) {
  return drawn(draw_fp8, seed, count);
}

std::vector<AttentionProblem> drawn_decode_problems(std::uint64_t seed, int count) {
  return drawn(draw_decode, seed, count);
}

std::vector<Stratum> strata_of(const std::vector<RunEntry>& runs, const std::string& kernel) {
  std::vector<Stratum> strata;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    std::map<std::string, Stratum> by_name;
    for (const Ratio& ratio : ratios_of(runs, kernel, direction)) {
      for (const std::string& name : classes_of(ratio.problem)) {
        Stratum& stratum =
            by_name.try_emplace(name, Stratum{.direction = direction, .name = name}).first->second;
        stratum.mean += std::log(ratio.of_best);
        if (stratum.problems++ == 0 || ratio.of_best < stratum.worst) {
          stratum.worst = ratio.of_best;
          stratum.worst_problem = describe(ratio.problem);
        }
      }
    }
    const std::size_t begin = strata.size();
    for (auto& [name, stratum] : by_name) {
      stratum.mean = std::exp(stratum.mean / stratum.problems);
      strata.push_back(stratum);
    }
    std::sort(strata.begin() + static_cast<std::ptrdiff_t>(begin), strata.end(),
              [](const Stratum& a, const Stratum& b) {
                return std::pair(a.name != "all", a.mean) < std::pair(b.name != "all", b.mean);
              });
  }
  return strata;
}

}  // namespace tilescope
