// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/validation/noise_floor_bytes.hpp"

#include <doctest/doctest.h>

namespace tilescope {
namespace {

TEST_CASE("the noise floor lies on lines between the measured durations, and on the last line above them") {
  const std::vector<NoiseFloor> measured = {
      {kAsleep, 1e-3, 1000}, {kAsleep, 2e-3, 3000}, {kAsleep, 4e-3, 4000}};
  for (const auto& point : {std::pair<double, std::int64_t>{0, 1000},
                            {0.5e-3, 1000},
                            {1e-3, 1000},
                            {1.25e-3, 1500},
                            {2e-3, 3000},
                            {3e-3, 3500},
                            {4e-3, 4000},
                            {8e-3, 6000}}) {
    const auto& [seconds, bytes] = point;
    CAPTURE(point.first);
    CHECK(noise_floor_bytes(measured, seconds) == bytes);
  }
}

TEST_CASE("where nothing or one duration was measured there is no line") {
  CHECK(noise_floor_bytes({}, 1) == 0);
  for (const double seconds : {0.5, 1.0, 100.0})
    CHECK(noise_floor_bytes({{kAsleep, 1, 700}}, seconds) == 700);
  CHECK(noise_floor_bytes({{kAsleep, 1, 700}, {kAsleep, 1, 800}}, 2) == 800);
}

TEST_CASE("a line that falls does not fall below nothing") {
  const std::vector<NoiseFloor> falling = {{kAsleep, 1, 1000}, {kAsleep, 2, 500}};
  CHECK(noise_floor_bytes(falling, 1.5) == 750);
  CHECK(noise_floor_bytes(falling, 10) == 0);
}

TEST_CASE("the load under which the device reads most at that time counts, each load by its own line") {
  const std::vector<NoiseFloor> crossing = {
      {kAsleep, 1, 1000}, {kAsleep, 3, 1200}, {"busy", 1, 400}, {"busy", 2, 1000}, {"busy", 3, 2000}};
  for (const auto& point : {std::pair{1.0, 1000}, {2.0, 1100}, {2.5, 1500}, {3.0, 2000}, {4.0, 3000}}) {
    const auto& [seconds, bytes] = point;
    CAPTURE(point.first);
    CHECK(noise_floor_bytes(crossing, seconds) == bytes);
  }
}

TEST_CASE("a table has a row for each duration and a column for each load") {
  using Rows = std::vector<std::vector<std::string>>;
  CHECK(noise_floor_rows({{kAsleep, 1e-3, 30000}, {kAsleep, 1, 600000}, {"busy", 1e-3, 40000}}) ==
        Rows{{"for", "asleep", "busy"}, {"1 ms", "30 kB", "40 kB"}, {"1 s", "600 kB", "-"}});
}

}  // namespace
}  // namespace tilescope
