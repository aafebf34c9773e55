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
  static constexpr double kCombineSplit = 0.07;

  int slots, tile_bytes;
  double alone;  // a step of a CTA that has its SM to itself, over that of one which has its share

  explicit DecodeTimes(const DecodeShape& shape)
      : slots(kSms * shape.ctas_per_sm()),
        tile_bytes(2 * shape.tile().block_n * shape.key_bytes()),
        alone(shape.fp8_keys ? 1.7 : alone_of_16_bits(shape.head_dim)) {}

  static constexpr double alone_of_16_bits(int head_dim) { return head_dim <= 64 ? 1.05 : 0.75; }
  double step() const { return tile_bytes / kSmBytes; }
  /// As many CTAs as fit are there at once. Those of the last wave are bound by what one alone takes and by
  /// the memory, between which the fourth powers pass smoothly: where the two are alike, both are felt.
  double of_splits(const SplitWalks& walks, int splits) const {
    const int share = ceil_div(walks.visited_tiles, splits);
    const std::int64_t ctas = walks.q_tiles * ceil_div(walks.visited_tiles, share), full = ctas / slots;
    const double on_each = static_cast<double>(ctas % slots) / kSms;
    const double uneven = on_each > 1 ? kUnevenSms * (std::ceil(on_each) - on_each) : 0.0;
    const double bound = on_each + uneven;
    const double last = on_each > 0 ? std::sqrt(std::hypot(alone * alone, bound * bound)) : 0.0;
    const double steps = static_cast<double>(full * slots / kSms) + last;
    return share * steps * step() + kStart * static_cast<double>(ceil_div(ctas, std::int64_t{slots})) +
           (splits > 1 ? kCombine + kCombineSplit * splits : 0.0);
  }
  /// Where walks are of lengths of their own, how many tiles a split of fixed length has: what all wait for
  /// at the end, `kLastSteps` of its steps, against the splits of the longest walk, of which every walk has
  /// as many, most of them empty: the sum of the two is least where they are equal.
  int tiles_of_uneven(const SplitWalks& walks) const {
    const double last_steps = slots > 2 * kSms ? 0.9 : 0.55, empty_cta = tile_bytes / 4e6;
    const double a_split = kCombineSplit + empty_cta * static_cast<double>(walks.q_tiles);
    return static_cast<int>(std::lround(std::sqrt(a_split * walks.visited_tiles / (last_steps * step()))));
  }
};

}  // namespace

ProgramOptions Decode::default_options(const AttentionProblem& problem) {
  ProgramOptions options = ProgramOptions::with_tile(shape(problem).tile());
  options.pack_gqa = problem.group_size() > 1 && !problem.descales.by_block();
  const DecodeTimes times(shape(problem));
  options.splits = choose_splits(
      problem, options,
      [&times](const SplitWalks& walks) {
        return fewest_splits(walks.visited_tiles, std::min(2 * times.slots, walks.visited_tiles),
                             [&](int splits) { return times.of_splits(walks, splits); });
      },
      [&times](const SplitWalks& walks) { return times.tiles_of_uneven(walks); });
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
