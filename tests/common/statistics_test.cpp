// SPDX-License-Identifier: Apache-2.0
#include "common/statistics.hpp"

#include <doctest/doctest.h>

namespace tilescope {

TEST_CASE("mean, median and coefficient of variation") {
  CHECK(mean_of({}) == 0);
  CHECK(mean_of({1, 2, 6}) == 3);
  CHECK(median_of({}) == 0);
  CHECK(median_of({3}) == 3);
  CHECK(median_of({9, 1, 5}) == 5);
  CHECK(median_of({9, 1, 5, 7}) == 6);
  CHECK(coefficient_of_variation({5}) == 0);
  CHECK(coefficient_of_variation({5, 5, 5}) == 0);
  CHECK(coefficient_of_variation({2, 4}) == doctest::Approx(1.41421356 / 3));
}

}  // namespace tilescope
