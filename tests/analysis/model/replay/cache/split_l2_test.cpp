// SPDX-License-Identifier: Apache-2.0
// The two partitions of an L2 against what was measured of one, pattern by pattern.
#include "analysis/model/replay/cache/split_l2.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "analysis/model/replay/ctas/cta_schedule.hpp"
#include "analysis/model/replay/tiles/tile_memory.hpp"
#include "common/errors.hpp"
#include "common/statistics.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kPiece = 16 * 1024;

/// What goes over a footprint again and again.
struct Pattern {
  AccessKind kind = AccessKind::load;
  std::vector<int> partitions = {0, 1};  // of the SMs that touch each piece
  bool own = false;                      // pieces go to the partitions in turn, each to one alone
  bool at_random = false;                // pieces lie at random places, else one after the other
};

/// Share of a footprint that the next round over it finds in the H200's L2.
double kept(const Pattern& pattern, double mebibytes) {
  LineSample sample(*load_machine("h200").split_l2());
  SplitL2 l2(sample);
  testing::ProblemGenerator random(7);
  std::vector<LineSample::Range> pieces;
  const auto bytes = static_cast<std::int64_t>(mebibytes * static_cast<double>(kMiB));
  for (std::int64_t at = 0; at < bytes; at += kPiece) {
    const LineSample::Number begin = sample.size();
    sample.place(pattern.at_random ? kPiece * random.between(0, 1 << 24) : at, kPiece);
    pieces.push_back({begin, sample.size()});
  }
  std::int64_t missed = 0;
  constexpr int kRounds = 6;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      for (const int partition : pattern.partitions) {
        if (pattern.own && partition != pattern.partitions[i % pattern.partitions.size()]) continue;
        const std::int64_t from_dram = l2.access(pattern.kind, pieces[i], partition);
        if (round > 0) missed += from_dram;
      }
    }
  }
  return 1 - static_cast<double>(missed) / (static_cast<double>(sample.size()) * (kRounds - 1));
}

TEST_CASE(
    "what all SMs read is kept by both partitions, up to half of the L2 where it fills the sets evenly") {
  // Measured: 1.000, 0.994, 0.28, 0.02, 0.00 of 26, 28, 32, 36, 40 MiB that lie one after the other.
  const Pattern even;
  CHECK(kept(even, 26) == 1);
  CHECK(kept(even, 28) > 0.95);
  CHECK(kept(even, 32) < 0.5);
  CHECK(kept(even, 36) < 0.05);
}

TEST_CASE("pieces of 16 KiB at random places overflow some sets early and leave others room") {
  const Pattern at_random{.at_random = true};
  const struct {
    double mebibytes, measured;
  } points[] = {{16, 0.96}, {20, 0.83}, {24, 0.69}, {28, 0.52}, {32, 0.34}, {36, 0.21}, {40, 0.12}};
  for (const auto& point : points) {
    CAPTURE(point.mebibytes);
    CHECK(kept(at_random, point.mebibytes) == doctest::Approx(point.measured).epsilon(0.06).scale(1));
  }
}

TEST_CASE("SMs of one partition lose the lines with their home there first, and find the others across") {
  // Measured: 1.000, 0.50, 0.50, 0.00 of 24, 40, 52, 72 MiB.
  const Pattern one{.partitions = {1}};
  CHECK(kept(one, 24) == 1);
  CHECK(kept(one, 40) == doctest::Approx(0.5).epsilon(0.02));
  CHECK(kept(one, 52) == doctest::Approx(0.5).epsilon(0.02));
  CHECK(kept(one, 72) < 0.02);
}

TEST_CASE("what one SM reads takes three quarters of what all read, what is only reduced half") {
  // Measured, each piece with an SM of its own, reads: 1.00, 0.99, 0.00 of 36, 40, 52 MiB; reductions: 1.00,
  // 1.00, 0.05 of 52, 56, 66 MiB.
  const Pattern own{.own = true};
  CHECK(kept(own, 36) > 0.98);
  CHECK(kept(own, 52) < 0.05);
  const Pattern reduced{.kind = AccessKind::reduce, .own = true};
  CHECK(kept(reduced, 52) == 1);
  CHECK(kept(reduced, 56) > 0.95);
  CHECK(kept(reduced, 68) < 0.1);
}

TEST_CASE(
    "a store leaves its bytes in both partitions and fetches nothing, a flush writes what is dirty once") {
  LineSample sample(*load_machine("h200").split_l2());
  SplitL2 l2(sample);
  sample.place(0, 8 * kMiB);
  const LineSample::Range all{0, sample.size()};
  REQUIRE(all.count() > 100);
  CHECK(l2.access(AccessKind::store, all, 0) == 0);
  CHECK(l2.access(AccessKind::load, all, 0) == 0);
  CHECK(l2.access(AccessKind::load, all, 1) == 0);
  CHECK(l2.access(AccessKind::store, all, 1) == 0);
  CHECK(l2.num_written() == all.count());
}

/// What rounds of reductions over a footprint in pages at random places do.
struct Reduced {
  double written;       // share of the footprint that a round writes to DRAM
  std::int64_t missed;  // lines, in all rounds
};
Reduced reduce_again(double megabytes, std::optional<std::int64_t> dirty_ways) {
  constexpr std::int64_t kPage = 2 * kMiB;
  constexpr int kRounds = 6;
  LineSample sample(*load_machine("h200").split_l2());
  SplitL2 l2(sample, dirty_ways);
  PageTable pages(0);
  std::vector<LineSample::Range> pieces;
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(1e6 * megabytes); at += kPiece) {
    const LineSample::Number begin = sample.size();
    sample.place(pages.place_of(at / kPage) * kPage + at % kPage, kPiece);
    pieces.push_back({begin, sample.size()});
  }
  std::int64_t before = 0, missed = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (round == 1) before = l2.num_written();
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      missed += l2.access(AccessKind::reduce, pieces[i], static_cast<int>(i % kL2Partitions));
    }
  }
  const double footprint = static_cast<double>(sample.size()) * (kRounds - 1);
  return {static_cast<double>(l2.num_written() - before) / footprint, missed};
}

TEST_CASE("a set with more than half of its lines dirty writes the oldest back and keeps it") {
  const SplitL2Shape shape = *load_machine("h200").split_l2();
  const struct {
    double megabytes, measured;
  } points[] = {{16, 0}, {27, 0.22}, {32, 0.66}, {37, 0.81}, {50, 0.98}};
  for (const auto& point : points) {
    CAPTURE(point.megabytes);
    const Reduced limited = reduce_again(point.megabytes, shape.dirty_ways);
    const Reduced unlimited = reduce_again(point.megabytes, std::nullopt);
    CHECK(limited.written == doctest::Approx(point.measured).epsilon(0.15).scale(1));
    CHECK(unlimited.written < 0.1);
    CHECK(limited.missed == unlimited.missed);  // what is written back is kept
  }
}

TEST_CASE(
    "dirty lines that are soon to leave a full set are written back, and are there to be written again") {
  const SplitL2Shape shape = *load_machine("h200").split_l2();
  for (const bool limited : {false, true}) {
    CAPTURE(limited);
    LineSample sample(shape);
    SplitL2 l2(sample, limited ? shape.dirty_ways : std::nullopt);
    sample.place(0, 4 * kMiB);
    const LineSample::Range summed{0, sample.size()};
    sample.place(64 * kMiB, 25 * kMiB);  // of partitions of 30 MiB
    const LineSample::Range stream{summed.end, sample.size()};
    l2.access(AccessKind::store, summed, 0);
    for (const int partition : {0, 1}) l2.access(AccessKind::load, stream, partition);
    CHECK(l2.access(AccessKind::reduce, summed, 0) < summed.count() / 10);
    const double written = static_cast<double>(l2.num_written()) / static_cast<double>(summed.count());
    CHECK(written == doctest::Approx(limited ? 1.8 : 1.0).epsilon(0.12));
  }
}

TEST_CASE("lines that are to go first make room for a stream, and what all read again stays") {
  const SplitL2Shape shape = *load_machine("h200").split_l2();
  for (const bool hinted : {false, true}) {
    CAPTURE(hinted);
    LineSample sample(shape);
    SplitL2 l2(sample);
    sample.place(0, 16 * kMiB);
    const LineSample::Range kept{0, sample.size()};
    sample.place(64 * kMiB, 64 * kMiB, hinted);
    const LineSample::Range stream{kept.end, sample.size()};
    CHECK(l2.access(AccessKind::load, kept, 0) == kept.count());
    CHECK(l2.access(AccessKind::load, stream, 0) == stream.count());
    CHECK(l2.access(AccessKind::load, kept, 0) == (hinted ? 0 : kept.count()));
  }
}

TEST_CASE("a sample stands for the whole") {
  const SplitL2Shape shape = *load_machine("h200").split_l2();
  for (const std::int64_t start : {std::int64_t{64}, 3 * kMiB, 777 * kMiB + 4096}) {
    LineSample sample(shape);
    sample.place(start, 64 * kMiB);
    CHECK(sample.bytes_per_line() * static_cast<double>(sample.size()) ==
          doctest::Approx(64.0 * static_cast<double>(kMiB)).epsilon(0.01));
  }
  CHECK_THROWS_AS(LineSample({kMiB, 1024, shape.sm_groups}), BadInput);
}

TEST_CASE("CTAs fill the first group of SMs, then the others evenly, wave after wave") {
  const std::vector<SmGroup> groups = {{2, 0}, {3, 1}, {4, 0}, {1, 1}};
  const auto partitions = [](const std::vector<SmGroup>& of, std::size_t slots, std::size_t launch) {
    std::vector<int> numbers;
    for (const SmPlace& place : places_of_slots(of, slots, launch, 0)) {
      CHECK(place.clock == 1);
      numbers.push_back(place.partition);
    }
    return numbers;
  };
  CHECK(partitions(groups, 1, 0) == std::vector<int>{0});
  CHECK(partitions(groups, 5, 0) == std::vector<int>{0, 0, 1, 0, 1});
  CHECK(partitions(groups, 10, 0) == std::vector<int>{0, 0, 1, 1, 1, 0, 0, 0, 0, 1});
  CHECK(partitions(groups, 12, 0) == std::vector<int>{0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0});
  // Another launch begins with another group after the first.
  CHECK(partitions(groups, 10, 1) == std::vector<int>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(partitions(groups, 10, 3) == partitions(groups, 10, 0));
  CHECK(partitions({{4, 1}}, 6, 2) == std::vector<int>(6, 1));
  CHECK(partitions({}, 3, 1) == std::vector<int>(3, 0));
}

TEST_CASE("a wave that is not whole leaves out SMs of each group but the first") {
  const std::vector<SmGroup> groups = {{2, 0}, {3, 1}, {4, 0}, {1, 1}};
  std::vector<std::size_t> sms;
  for (const SmPlace& place : places_of_slots(groups, 17, 0, 0)) sms.push_back(place.sm);
  CHECK(sms == std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 5, 6, 9});
}

TEST_CASE("a group of SMs has one clock, in each launch another") {
  const std::vector<SmGroup> groups(64, {2, 0});
  std::vector<double> clocks;
  for (std::size_t launch = 0; launch < 8; ++launch) {
    const std::vector<SmPlace> places = places_of_slots(groups, 128, launch, 1e-3);
    for (std::size_t slot = 0; slot < places.size(); slot += 2) {
      CHECK(places[slot].clock == places[slot + 1].clock);
      clocks.push_back(places[slot].clock);
    }
  }
  CHECK(coefficient_of_variation(clocks) == doctest::Approx(1e-3).epsilon(0.1));
  std::sort(clocks.begin(), clocks.end());
  CHECK(std::adjacent_find(clocks.begin(), clocks.end()) == clocks.end());
}

}  // namespace
}  // namespace tilescope
