// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/page_placement.hpp"

#include <doctest/doctest.h>

#include "common/errors.hpp"

namespace tilescope {

TEST_CASE("placements have names, and others are refused") {
  for (const auto pages : {PagePlacement::contiguous, PagePlacement::random}) {
    CHECK(parse_page_placement(to_string(pages)) == pages);
  }
  CHECK_THROWS_AS(parse_page_placement("strewn"), BadInput);
  CHECK(parse_page_placement("scattered") == PagePlacement::random);  // its former name
}

}  // namespace tilescope
