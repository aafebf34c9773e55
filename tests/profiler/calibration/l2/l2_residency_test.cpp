// SPDX-License-Identifier: Apache-2.0
// Which footprints an L2 is tried with, and what is read off the shares that it kept.
#include "profiler/calibration/l2/l2_residency.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

namespace tilescope {
namespace {

constexpr std::int64_t kMebi = 1 << 20;
constexpr std::int64_t kGrain = 16 * 1024;

TEST_CASE("footprints go from an eighth of the L2 to twice its size, finest round the onset") {
  const std::vector<std::int64_t> footprints = residency_footprints(64 * kMebi, kGrain);
  CHECK(footprints.front() == 8 * kMebi);
  CHECK(footprints.back() == 128 * kMebi);
  for (std::size_t i = 1; i < footprints.size(); ++i) {
    CAPTURE(footprints[i]);
    const std::int64_t step = footprints[i] - footprints[i - 1];
    const bool fine = footprints[i] > 16 * kMebi && footprints[i] <= 48 * kMebi;
    CHECK(step == (fine ? 2 : footprints[i] <= 64 * kMebi ? 4 : 16) * kMebi);
  }
}

TEST_CASE("footprints are whole chunks of an L2 of any size") {
  for (const std::int64_t l2_bytes : {41'943'040, 50'000'000, 6'291'456, 123'456'789}) {
    CAPTURE(l2_bytes);
    const auto footprints = residency_footprints(l2_bytes, kGrain);
    CHECK(std::is_sorted(footprints.begin(), footprints.end()));
    CHECK(footprints.back() <= 2 * l2_bytes);
    for (const std::int64_t bytes : footprints) CHECK(bytes % kGrain == 0);
  }
}

TEST_CASE("random places are different ones, the same each time, all over") {
  const auto places = random_places(1000, 16000);
  CHECK(places == random_places(1000, 16000));
  CHECK(places.size() == 1000);
  CHECK(std::set<std::int32_t>(places.begin(), places.end()).size() == 1000);
  const auto [least, most] = std::minmax_element(places.begin(), places.end());
  CHECK(*least >= 0);
  CHECK(*most < 16000);
  const auto low =
      std::count_if(places.begin(), places.end(), [](std::int32_t place) { return place < 8000; });
  CHECK(low > 430);
  CHECK(low < 570);
  const auto all = random_places(50, 50);
  CHECK(std::set<std::int32_t>(all.begin(), all.end()).size() == 50);
}

TEST_CASE("the footprint of which a share is kept lies between two measured ones") {
  const std::vector<L2Residency> measured = {
      {kReadByAll, 100, 1.0}, {kReadRandom, 100, 1.0}, {kReadByAll, 200, 0.8},    {kReadRandom, 200, 0.2},
      {kReadByAll, 300, 0.0}, {kReadByOne, 100, 0.3},  {kReducedByOne, 100, 0.95}};
  CHECK(kept_bytes(measured, kReadByAll, 0.9) == 150);
  CHECK(half_kept_bytes(measured, kReadByAll) == 237);
  CHECK(kept_bytes(measured, kReadByAll, 0.4) == 250);
  CHECK(kept_bytes(measured, kReadRandom, 0.6) == 150);
  CHECK(kept_bytes(measured, kReadRandom, 0.1) == 0);
  CHECK(half_kept_bytes(measured, kReadByOne) == 0);
  CHECK(half_kept_bytes(measured, kReducedByOne) == 0);
  CHECK(half_kept_bytes(measured, kReadByPartition) == 0);
}

}  // namespace
}  // namespace tilescope
