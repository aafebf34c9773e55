// SPDX-License-Identifier: Apache-2.0
#include "common/number_format.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "common/errors.hpp"

namespace tilescope {

TEST_CASE("numbers print with four significant digits and a unit") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(999) == "999 B");
  CHECK(format_bytes(4362076160.0) == "4.362 GB");
  CHECK(format_bytes(999960) == "1.000 MB");
  CHECK(format_flops(2.2e12) == "2.200 TFLOP");
  CHECK(format_ratio(4.361) == "4.36x");
  CHECK(format_ratio(1531.2) == "1531x");
  CHECK(format_length(131072) == "128K");
  CHECK(format_length(1000) == "1000");
  CHECK(format_capacity(50 << 20) == "50 MiB");
  CHECK(format_number(1.25e-5) == "1.25e-05");
  CHECK(short_tick("2.500 GB") == "2.5 GB");
  CHECK(short_tick("10.00x") == "10.00x");
}

TEST_CASE("axes refuse ranges that are not positive and finite") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double subnormal = std::numeric_limits<double>::denorm_min();
  for (const double high : {0.0, -1.0, subnormal, infinity, std::nan("")}) {
    CAPTURE(high);
    CHECK_THROWS_AS(linear_ticks(high, format_number), BadInput);
    CHECK_THROWS_AS(logarithmic_ticks(1, high, format_number), BadInput);
    CHECK_THROWS_AS(logarithmic_ticks(high, 10, format_number), BadInput);
  }
  CHECK(linear_ticks(std::numeric_limits<double>::max(), format_number).size() > 3);
  CHECK(
      logarithmic_ticks(std::numeric_limits<double>::min(), std::numeric_limits<double>::max(), format_number)
          .size() > 600);
}

}  // namespace tilescope
