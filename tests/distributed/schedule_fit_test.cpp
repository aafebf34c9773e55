// SPDX-License-Identifier: Apache-2.0
// The schedule behind the bytes on a link.
#include "distributed/counts/schedule_fit.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "distributed/counts/link_traffic.hpp"

namespace tilescope {
namespace {

const AttentionProblem kShared{.heads = 32,
                               .heads_kv = 8,
                               .seqlen_q = 8192,
                               .seqlen_k = 8192,
                               .head_dim = 128,
                               .dtype = ElementType::bf16,
                               .causal = true};

bool names(const ScheduleFit& fit, LinkSchedule schedule) {
  return std::count(fit.schedules.begin(), fit.schedules.end(), schedule) > 0;
}

TEST_CASE("each schedule is found behind its own bytes, and no other where bytes tell them apart") {
  for (const int ranks : {2, 4, 8}) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (const LinkSchedule schedule : kLinkSchedules) {
        if (schedule == LinkSchedule::ulysses_ring && ranks == 2) continue;
        const auto sent =
            static_cast<double>(link_closed_form(kShared, direction, {schedule, ranks})[0].sent);
        const auto fits = fit_schedules(kShared, direction, ranks, 1.0005 * sent);
        CAPTURE(to_string(schedule));
        CAPTURE(ranks);
        REQUIRE(!fits.empty());
        CHECK(names(fits[0], schedule));
        for (const LinkSchedule other : fits[0].schedules) {
          CHECK(link_closed_form(kShared, direction, {other, ranks})[0].sent == doctest::Approx(sent));
        }
      }
    }
  }
}

TEST_CASE("what others do with a schedule is said") {
  const double s = 4096.0 * 8 * 2 * 128 * 2;  // K and V of one of two
  const auto how = [](Direction direction, double sent) {
    const auto fits = fit_schedules(kShared, direction, 2, sent);
    return fits.empty() ? std::string("none") : fits[0].how;
  };
  CHECK(how(Direction::forward, s) == "");
  CHECK(how(Direction::forward, s * 128 / 120) == "by NCCL's protocol LL128");
  CHECK(how(Direction::forward, 2 * s) == "by NCCL's protocol LL");
  CHECK(how(Direction::forward, 1.5 * s) == "none");
  CHECK(how(Direction::backward, 5 * s) == "dK and dV in fp32");
  CHECK(how(Direction::backward, 2 * s) == "dK and dV in the element type");  // K and V, and their gradients
}

}  // namespace
}  // namespace tilescope
