// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/simulate_run.hpp"

#include <doctest/doctest.h>

namespace tilescope {
namespace {

constexpr std::int64_t kMB = 1'000'000, kKept = 60 * kMB;

TEST_CASE("spilled registers are written once a CTA where a wave moves more than the L2 keeps") {
  const SpilledRegisters spilled{.cta_bytes = 4096, .ctas = 1320, .co_resident_ctas = 264};
  CHECK(spilled_write_bytes(spilled, 5 * kKept, kKept) == 1320 * 4096);
  CHECK(spilled_write_bytes(spilled, 50 * kKept, kKept) == 1320 * 4096);
}

TEST_CASE(
    "spilled registers of CTAs side by side are written once, of those after them as the L2 turns over") {
  const SpilledRegisters spilled{.cta_bytes = 4096, .ctas = 1320, .co_resident_ctas = 264};
  CHECK(spilled_write_bytes(spilled, 0, kKept) == 264 * 4096);
  CHECK(spilled_write_bytes(spilled, 5 * kKept / 2, kKept) == (264 + 1056 / 2) * 4096);
}

TEST_CASE("one wave spills once, and nothing spills where registers do") {
  CHECK(spilled_write_bytes({.cta_bytes = 8192, .ctas = 220, .co_resident_ctas = 264}, kKept, kKept) ==
        220 * 8192);
  CHECK(spilled_write_bytes({.cta_bytes = 0, .ctas = 220, .co_resident_ctas = 264}, kKept, kKept) == 0);
}

}  // namespace
}  // namespace tilescope
