// SPDX-License-Identifier: Apache-2.0
#include "distributed/counts/schedule_fit.hpp"

#include <algorithm>
#include <cmath>

#include "distributed/counts/link_traffic.hpp"

namespace tilescope {
namespace {

struct Way {
  std::string how;
  double bytes = 0;
};

std::optional<double> most_sent(const AttentionProblem& problem, Direction direction,
                                const DistributedOptions& options) {
  try {
    double most = 0;
    for (const LinkBytes& rank : link_closed_form(problem, direction, options))
      most = std::max(most, static_cast<double>(rank.sent));
    return most;
  } catch (const BadInput&) {  // the schedule cannot split it
    return std::nullopt;
  }
}

/// What a pass sends by a schedule, and by variants of it; what rests on least first.
constexpr std::size_t kMostWays = 4;
std::vector<Way> ways_of(const AttentionProblem& problem, Direction direction,
                         const DistributedOptions& options) {
  const auto forward = most_sent(problem, Direction::forward, options);
  if (!forward) return {};
  if (direction == Direction::forward) return {{"", *forward}};
  const double backward = most_sent(problem, Direction::backward, options).value();
  if (options.schedule == LinkSchedule::ulysses || options.schedule == LinkSchedule::ulysses_heads) {
    const double g = static_cast<double>(problem.group_size());
    const double inputs = *forward * (g / 2 + 1) / (g + 1);  // Q, K and V of all that a forward pass sends
    return {{"", backward}, {"Q, K and V sent to their heads again", backward + inputs}};
  }
  if (options.schedule == LinkSchedule::ulysses_ring) return {{"", backward}};
  const double sums = backward - *forward, narrow = sums * element_bytes(problem.dtype) / 4;
  return {{"dK and dV in fp32", backward},
          {"dK and dV in the element type", *forward + narrow},
          {"K and V kept from the forward pass, dK and dV in fp32", sums},
          {"K and V kept from the forward pass, dK and dV in the element type", narrow}};
}

struct Protocol {
  const char* name;
  double factor;
};
constexpr Protocol kProtocols[] = {
    {"", 1}, {"by NCCL's protocol LL128", 128.0 / 120}, {"by NCCL's protocol LL", 2}};

std::string both(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + ", " + b;
}

}  // namespace

std::vector<ScheduleFit> fit_schedules(const AttentionProblem& problem, Direction direction, int ranks,
                                       double sent_bytes) {
  std::vector<ScheduleFit> fits;
  const auto consider = [&](LinkSchedule schedule, const Way& way, const Protocol& protocol) {
    const double sent = way.bytes * protocol.factor, difference = sent > 0 ? sent_bytes / sent - 1 : 1;
    if (std::abs(difference) > kLinkFit) return;
    const std::string how = both(way.how, protocol.name);
    const auto same = std::ranges::find_if(
        fits, [&](const ScheduleFit& fit) { return fit.how == how && fit.sent_bytes == sent; });
    if (same == fits.end()) {
      fits.push_back({{schedule}, how, sent, difference});
    } else {
      same->schedules.push_back(schedule);
    }
  };
  for (const Protocol& protocol : kProtocols) {
    for (std::size_t i = 0; i < kMostWays; ++i) {
      for (const LinkSchedule schedule : kLinkSchedules) {
        const std::vector<Way> ways = ways_of(problem, direction, {schedule, ranks});
        if (i < ways.size()) consider(schedule, ways[i], protocol);
      }
    }
  }
  std::ranges::stable_sort(fits, [](const ScheduleFit& a, const ScheduleFit& b) {
    return std::abs(a.difference) < std::abs(b.difference);
  });
  return fits;
}

}  // namespace tilescope
