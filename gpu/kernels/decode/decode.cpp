// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/decode.hpp"

#include <algorithm>
#include <cmath>

#include "gpu/kernels/decode/choose_splits.hpp"
#include "gpu/registry/asked_by.hpp"

namespace tilescope {

namespace {

/// An H200's times, in microseconds, to which they are fitted on batches of 1 to 592 walks (reports/decode
/// says how far they lie from others).
struct DecodeTimes {
  static constexpr int kSms = 132;
  static constexpr double kSmBytes = 33.3e3;  // an SM's share of the memory's rate, in a microsecond
  static constexpr double kStart = 2.5;       // until the first tile of a CTA is there, and behind the last
  static constexpr double kUnevenSms = 0.1;   // of what SMs wait for others that have a CTA more
  static constexpr double kCombine = 2.5;     // the second pass, and of each split
  static constexpr double kCombineSplit = 0.05;
  static constexpr double kEmptyRate = 4e6;  // of CTAs without a tile, in bytes of a tile in a microsecond

  int slots, tile_bytes;
  double alone;  // a step of a CTA that has its SM to itself, over that of one which has its share

  explicit DecodeTimes(const DecodeShape& shape)
      : slots(kSms * shape.ctas_per_sm()),
        tile_bytes(2 * shape.tile().block_n * shape.key_bytes()),
        alone(shape.fp8_keys ? 1.7 : alone_of_16_bits(shape.head_dim)) {}

  static constexpr double alone_of_16_bits(int head_dim) { return head_dim <= 64 ? 0.72 : 0.75; }
  double step() const { return tile_bytes / kSmBytes; }
  /// Steps for which an SM has `ctas` of equal length. As many CTAs as fit are there at once. Those of the
  /// last wave are bound by what one alone takes and by the memory, between which the fourth powers pass
  /// smoothly: where the two are alike, both are felt.
  double steps_of(std::int64_t ctas) const {
    const double on_each = static_cast<double>(ctas % slots) / kSms;
    const double uneven = on_each > 1 ? kUnevenSms * (std::ceil(on_each) - on_each) : 0.0;
    const double bound = on_each + uneven;
    const double last = on_each > 0 ? std::sqrt(std::hypot(alone * alone, bound * bound)) : 0.0;
    return static_cast<double>(ctas / slots * slots) / kSms + last;
  }
  double starts_of(std::int64_t ctas) const {
    return kStart * static_cast<double>(ceil_div(ctas, std::int64_t{slots}));
  }
  static double combine_of(int splits) { return splits > 1 ? kCombine + kCombineSplit * splits : 0.0; }

  double of_splits(const SplitWalks& walks, int splits) const {
    const int share = ceil_div(walks.visited_tiles, splits);
    const std::int64_t ctas = walks.q_tiles * ceil_div(walks.visited_tiles, share);
    return share * steps_of(ctas) * step() + starts_of(ctas) + combine_of(splits);
  }
  /// Of walks of lengths of their own, split after every `share` tiles: the steps of all, shared out evenly,
  /// and what SMs wait for at the end, by the part of the splits that is whole; every walk has the splits of
  /// the longest one, and many are empty.
  double of_shares(const UnevenWalks& walks, int share) const {
    const std::int64_t ctas = walks.busy(share);
    const int splits = ceil_div(walks.most, share);
    const double even = static_cast<double>(walks.tiles) / kSms;
    const double filled = static_cast<double>(walks.tiles) / (static_cast<double>(ctas) * share);
    const double wait = filled * (steps_of(ctas) - static_cast<double>(ctas) / kSms) + (1 - filled) * alone;
    const auto empty = static_cast<double>(walks.q_tiles * splits - ctas);
    return (even + share * wait) * step() + starts_of(ctas) + combine_of(splits) +
           empty * tile_bytes / kEmptyRate;
  }
  /// How many tiles a split of fixed length has, of numbers that grow by a sixteenth; the longest walk's:
  /// none.
  int tiles_of_uneven(const UnevenWalks& walks) const {
    int best = walks.most;
    double least = of_shares(walks, best);
    for (int share = 4; share < walks.most; share += ceil_div(share, 16)) {
      const double time = of_shares(walks, share);
      if (time <= least) least = time, best = share;
    }
    return best;
  }
};

}  // namespace

ProgramOptions Decode::default_options(const AttentionProblem& problem) {
  ProgramOptions options = ProgramOptions::with_tile(shape(problem).tile());
  options.pack_gqa = problem.group_size() > 1 && !problem.descales.by_block();
  const DecodeTimes times(shape(problem));
  constexpr double kNearBest = 1.01;
  options.splits = choose_splits(
      problem, options,
      [&times](const SplitWalks& walks) {
        return fewest_splits(
            walks.visited_tiles, std::min(2 * times.slots, walks.visited_tiles),
            [&](int splits) { return times.of_splits(walks, splits); }, kNearBest);
      },
      [&times](const UnevenWalks& walks) { return times.tiles_of_uneven(walks); });
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
