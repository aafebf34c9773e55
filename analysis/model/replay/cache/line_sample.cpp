// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/cache/line_sample.hpp"

#include <fmt/format.h>

#include <bit>
#include <numeric>
#include <string>
#include <utility>

#include "common/errors.hpp"
#include "cpu_ref/numeric/philox.hpp"

namespace tilescope {
namespace {

constexpr std::uint32_t kFillStream = 0, kHomeStream = 1;
constexpr std::size_t kRecentFills = 4096;  // some megabytes: pages at random places come back to theirs

/// The same on every machine.
Philox4 random_of(std::uint64_t index, std::uint32_t stream) {
  const auto low = static_cast<std::uint32_t>(index), high = static_cast<std::uint32_t>(index >> 32);
  return philox4x32(0, {{low, high, stream, 0}});
}

/// x with value * x = 1 modulo `modulus`. @param value without a common divisor
std::int64_t inverse_modulo(std::int64_t value, std::int64_t modulus) {
  std::int64_t a = value, b = modulus, x = 1, y = 0;  // a = x * value, b = y * value, modulo `modulus`
  while (b != 0) {
    const std::int64_t quotient = a / b;
    a = std::exchange(b, a - quotient * b);
    x = std::exchange(y, x - quotient * y);
  }
  return x < 0 ? x + modulus : x;
}

}  // namespace

LineSample::LineSample(const SplitL2Shape& shape)
    : ways_(static_cast<std::size_t>(shape.ways)),
      sets_(shape.sets()),
      lines_of_fill_(kL2Partitions * sets_),
      recent_(kRecentFills),
      at_offset_(static_cast<std::size_t>(lines_of_fill_)),
      sampled_(static_cast<std::size_t>(lines_of_fill_ / kLinesOfRun)) {
  if (sets_ < kSets) {
    throw BadInput("l2_ways", std::to_string(shape.ways),
                   fmt::format("must leave {} sets or more to half an L2", kSets));
  }
}

void LineSample::make(Fill& fill, std::int64_t number) {
  const std::int64_t pairs = sets_ / kLinesOfRun;  // of runs, one with each home
  const Philox4 random = random_of(static_cast<std::uint64_t>(number), kFillStream);
  const std::int64_t start = random.x[0] % sets_;
  std::int64_t step = random.x[1] % sets_;
  while (std::gcd(step, sets_) != 1) step = (step + 1) % sets_;
  const std::int64_t back = inverse_modulo(step, sets_);
  for (std::int64_t set = 0; set < kSets; ++set) {
    const std::int64_t i = (set - start + sets_) * back % sets_;  // among the lines of home 0
    for (std::int64_t home = 0; home < kL2Partitions; ++home) {
      const std::int64_t pair = i / kLinesOfRun ^ home;
      const auto home_of_first = static_cast<std::int64_t>(
          random_of(static_cast<std::uint64_t>(number * pairs + pair), kHomeStream).x[0] % kL2Partitions);
      const std::int64_t run = kL2Partitions * pair + (home ^ home_of_first);
      const auto offset = static_cast<std::size_t>(run * kLinesOfRun + i % kLinesOfRun);
      at_offset_[offset] = {static_cast<std::uint8_t>(set), static_cast<std::uint8_t>(home)};
      sampled_[offset / kLinesOfRun] |= std::uint32_t{1} << offset % kLinesOfRun;
    }
  }
  fill.number = number;
  fill.lines.clear();
  for (std::size_t run = 0; run < sampled_.size(); ++run) {
    for (std::uint32_t left = std::exchange(sampled_[run], 0); left != 0; left &= left - 1) {
      const std::size_t offset = run * kLinesOfRun + static_cast<std::size_t>(std::countr_zero(left));
      fill.lines.push_back({static_cast<std::uint32_t>(offset), at_offset_[offset]});
    }
  }
}

void LineSample::too_many() {
  throw MachineLacks(
      "this pass touches more memory than can be replayed; fewer heads or a shorter sequence would fit");
}

}  // namespace tilescope
