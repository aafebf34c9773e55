// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/decode.hpp"

#include <algorithm>
#include <limits>

#include "gpu/kernels/decode/choose_splits.hpp"
#include "gpu/registry/asked_by.hpp"

namespace tilescope {

namespace {

/// The fewest splits that take 2 % longer than the best, in steps of a CTA. As many CTAs as SMs have the
/// memory's rate; of more that are there at once each takes longer, and fewer in the last wave take no less.
/// Splits cost their partial results, and the pass that combines them. Where there are fewer q tiles than SMs
/// no SM gets two CTAs while others have one: 192 CTAs took 9 % longer than 128 (8 sequences of 16K keys). A
/// CTA that widens fp8 keys takes alone of these steps for one while it is alone on its SM, so that two fill
/// it.
int streaming_splits(const SplitWalks& walks, const DecodeShape& shape) {
  // Fitted to an H200's times (reports/decode): a second pass, its reads of each partial result, their bytes.
  constexpr double kCombineSteps = 4, kStepsASplit = 1.0 / 16, kPartialSteps = 0.5;
  constexpr int kSms = 132;
  const double alone = shape.fp8_keys ? 1.7 : 1.0;
  const int ctas_per_sm = shape.ctas_per_sm();
  const std::int64_t slots = std::int64_t{kSms} * ctas_per_sm;
  const auto steps = [&](int splits) {
    const int share = ceil_div(walks.visited_tiles, splits);
    const std::int64_t ctas = walks.q_tiles * ceil_div(walks.visited_tiles, share), last = ctas % slots;
    const bool uneven = walks.q_tiles < kSms && ctas > kSms && !shape.fp8_keys;
    if (splits > 1 && uneven) return std::numeric_limits<double>::infinity();
    const double waves = static_cast<double>(ctas / slots) * ctas_per_sm +
                         (last > 0 ? std::max(alone, static_cast<double>(last) / kSms) : 0.0);
    return splits == 1 ? share * waves
                       : (share + kPartialSteps) * waves + kCombineSteps + kStepsASplit * splits;
  };
  return fewest_splits(walks.visited_tiles, std::min(2 * static_cast<int>(slots), walks.visited_tiles),
                       steps);
}

}  // namespace

ProgramOptions Decode::default_options(const AttentionProblem& problem) {
  ProgramOptions options = ProgramOptions::with_tile(shape(problem).tile());
  options.pack_gqa = problem.group_size() > 1 && !problem.descales.by_block();
  options.splits = choose_splits(problem, options, [&problem](const SplitWalks& walks) {
    return streaming_splits(walks, shape(problem));
  });
  return options;
}

std::optional<std::string> Decode::lack(const AttentionProblem& problem, const ProgramOptions&) {
  if (!problem.descales.by_block()) return std::nullopt;
  return "takes descales of heads alone: descale_block must be left out";
}

bool Decode::first_choice(const AttentionProblem& problem) {
  return problem.seqlen_q * problem.group_size() <= DecodeShape::kRows;
}

std::vector<Boxes> Decode::boxes(const TileProgram& program) {
  using enum TensorName;
  if (program.name == PassName::combine) return combined_lse(program);
  if (is_fp8(program.problem.kv_type())) return by_copies(program, {q});
  return by_copies(program, {q, k, v});
}

LaunchShape Decode::launch_shape(const TileProgram& program) {
  if (program.name == PassName::combine) return {combine_threads_of(program.problem.head_dim), 0};
  const DecodeShape forward = shape(program.problem);
  return {forward.threads(), forward.end(), forward.ctas_per_sm()};
}

}  // namespace tilescope
