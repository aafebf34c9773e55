// SPDX-License-Identifier: Apache-2.0
#include "analysis/background_bytes.hpp"

#include <doctest/doctest.h>

namespace tilescope {
namespace {

TEST_CASE("background reads lie on lines between the measured durations, and on the last line above them") {
  const std::vector<BackgroundReads> measured = {{1e-3, 1000}, {2e-3, 3000}, {4e-3, 4000}};
  for (const auto& [seconds, bytes] : {std::pair<double, std::int64_t>{0, 1000},
                                       {0.5e-3, 1000},
                                       {1e-3, 1000},
                                       {1.25e-3, 1500},
                                       {2e-3, 3000},
                                       {3e-3, 3500},
                                       {4e-3, 4000},
                                       {8e-3, 6000}}) {
    CAPTURE(seconds);
    CHECK(background_bytes(measured, seconds) == bytes);
  }
}

TEST_CASE("where nothing or one duration was measured there is no line") {
  CHECK(background_bytes({}, 1) == 0);
  for (const double seconds : {0.5, 1.0, 100.0}) CHECK(background_bytes({{1, 700}}, seconds) == 700);
  CHECK(background_bytes({{1, 700}, {1, 800}}, 2) == 800);
}

TEST_CASE("a line that falls does not fall below nothing") {
  const std::vector<BackgroundReads> falling = {{1, 1000}, {2, 500}};
  CHECK(background_bytes(falling, 1.5) == 750);
  CHECK(background_bytes(falling, 10) == 0);
}

}  // namespace
}  // namespace tilescope
