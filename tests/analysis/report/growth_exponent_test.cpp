// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/figures/growth_exponent.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace tilescope {

TEST_CASE("the exponent of a power is found, through two points or many") {
  using Points = std::vector<std::pair<double, double>>;
  CHECK(growth_exponent(Points{{2, 12}, {4, 48}}) == doctest::Approx(2));
  CHECK(growth_exponent(Points{{1, 5}, {10, 0.5}, {100, 0.05}}) == doctest::Approx(-1));
  CHECK(growth_exponent(Points{{1, 1}, {2, 1}, {4, 1}, {8, 4}}) == doctest::Approx(0.6));  // the ends: 2/3
}

}  // namespace tilescope
