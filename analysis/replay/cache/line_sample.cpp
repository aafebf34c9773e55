// SPDX-License-Identifier: Apache-2.0
#include "analysis/replay/cache/line_sample.hpp"

#include <fmt/format.h>

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
      recent_(kRecentFills) {
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
  fill.number = number;
  fill.lines.clear();
  for (std::int64_t set = 0; set < kSets; ++set) {
    const std::int64_t i = (set - start + sets_) * back % sets_;  // among the lines of home 0
    for (std::int64_t home = 0; home < kL2Partitions; ++home) {
      const std::int64_t pair = i / kLinesOfRun ^ home;
      const auto home_of_first = static_cast<std::int64_t>(
          random_of(static_cast<std::uint64_t>(number * pairs + pair), kHomeStream).x[0] % kL2Partitions);
      const std::int64_t run = kL2Partitions * pair + (home ^ home_of_first);
      fill.lines.push_back({static_cast<std::uint32_t>(run * kLinesOfRun + i % kLinesOfRun),
                            {static_cast<std::uint8_t>(set), static_cast<std::uint8_t>(home)}});
    }
  }
  std::sort(fill.lines.begin(), fill.lines.end(),
            [](const FillLine& a, const FillLine& b) { return a.offset < b.offset; });
}

void LineSample::too_many() {
  throw MachineLacks(
      "this pass touches more memory than can be replayed; fewer heads or a shorter sequence would fit");
}

}  // namespace tilescope
