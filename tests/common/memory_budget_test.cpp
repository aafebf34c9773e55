// SPDX-License-Identifier: Apache-2.0
#include "common/memory_budget.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "common/errors.hpp"

namespace tilescope {

TEST_CASE("what does not fit is refused with its purpose, and with what would fit") {
  require_memory(kNeverScarceBytes + 1, "a little");
  REQUIRE(available_memory_bytes());
  CHECK(*available_memory_bytes() > 0);
  try {
    require_memory(std::numeric_limits<std::int64_t>::max(), "replaying this pass", "larger tiles would fit");
    FAIL("accepted");
  } catch (const MachineLacks& lacks) {
    const std::string message = lacks.what();
    CHECK(message.starts_with("replaying this pass needs "));
    CHECK(message.ends_with("; larger tiles would fit"));
  }
}

}  // namespace tilescope
