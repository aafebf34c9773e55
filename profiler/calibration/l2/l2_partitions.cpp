// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibration/l2/l2_partitions.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "common/statistics.hpp"

namespace tilescope {
namespace {

// On an H200 latencies deviate by 0.22 of their mean or more, and SMs correlate by 0.94 or more, either way.
constexpr double kLeastDeviation = 0.1;
constexpr double kLeastCorrelation = 0.5;

/// 0 where either does not vary.
double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const double mean_a = mean_of(a), mean_b = mean_of(b);
  double aa = 0, bb = 0, ab = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
    ab += (a[i] - mean_a) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

using Order = std::vector<int>;

/// CTAs after which all launches have filled the same SMs, before all of them are filled, and from which on
/// each launch goes round the same circle of SMs: the size of the first group, which may be empty. Nothing if
/// all launches begin the circle at one place, or go round none.
std::optional<std::size_t> first_group_size(const std::vector<Order>& orders) {
  const Order& first = orders.front();
  std::vector<std::set<int>> filled(orders.size());
  std::size_t size = 0;
  for (std::size_t cta = 0; cta + 1 < first.size(); ++cta) {
    for (std::size_t launch = 0; launch < orders.size(); ++launch) filled[launch].insert(orders[launch][cta]);
    if (std::ranges::all_of(filled, [&](const auto& sms) { return sms == filled.front(); })) {
      size = cta + 1;
    }
  }
  bool turned = false;
  for (const Order& order : orders) {
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(size);
    Order rest(first.begin() + static_cast<std::ptrdiff_t>(size), first.end());
    const auto place = std::ranges::find(rest, *begin);
    turned |= place != rest.begin();
    std::rotate(rest.begin(), place, rest.end());
    if (!std::equal(rest.begin(), rest.end(), begin)) return std::nullopt;
  }
  return turned ? std::optional(size) : std::nullopt;
}

std::vector<SmGroup> runs_of(const Order& order, std::size_t begin, std::size_t end,
                             const std::vector<int>& partition_of_sm) {
  std::vector<SmGroup> runs;
  for (std::size_t cta = begin; cta < end; ++cta) {
    const int partition = partition_of_sm.at(static_cast<std::size_t>(order[cta]));
    if (runs.empty() || runs.back().partition != partition) runs.push_back({0, partition});
    ++runs.back().sms;
  }
  return runs;
}

/// The circle `runs` cut open before its largest run, and of equals before the one that has the larger ones
/// behind it: wherever the launch began, the same comes out.
std::vector<SmGroup> opened_at_largest(std::vector<SmGroup> runs) {
  if (runs.size() > 1 && runs.front().partition == runs.back().partition) {
    runs.front().sms += runs.back().sms;  // the launch began inside of this run
    runs.pop_back();
  }
  const auto smaller = [](const SmGroup& a, const SmGroup& b) {
    return a.sms != b.sms ? a.sms < b.sms : a.partition > b.partition;
  };
  std::vector<SmGroup> best = runs;
  for (std::size_t turn = 1; turn < runs.size(); ++turn) {
    std::rotate(runs.begin(), runs.begin() + 1, runs.end());
    if (std::lexicographical_compare(best.begin(), best.end(), runs.begin(), runs.end(), smaller))
      best = runs;
  }
  return best;
}

}  // namespace

std::vector<int> sms_of_partitions(const L2Partitions& partitions) {
  std::vector<int> sms;
  for (const SmGroup& group : partitions.groups) {
    sms.resize(std::max(sms.size(), static_cast<std::size_t>(group.partition) + 1));
    sms[static_cast<std::size_t>(group.partition)] += group.sms;
  }
  return sms;
}

std::vector<int> partitions_from_latencies(const std::vector<std::vector<double>>& latencies) {
  std::vector<int> partitions(latencies.size(), 0);
  std::vector<double> deviations, correlations, sizes;
  for (const std::vector<double>& of_sm : latencies) {
    deviations.push_back(coefficient_of_variation(of_sm));
    correlations.push_back(correlation(latencies.front(), of_sm));
    sizes.push_back(std::fabs(correlations.back()));
  }
  // Medians, so that one SM that was disturbed decides nothing.
  if (median_of(deviations) < kLeastDeviation || median_of(sizes) < kLeastCorrelation) return partitions;
  std::transform(correlations.begin(), correlations.end(), partitions.begin(),
                 [](double against_first) { return against_first < 0 ? 1 : 0; });
  return partitions;
}

std::vector<SmGroup> issue_groups(const std::vector<std::vector<int>>& orders,
                                  const std::vector<int>& partition_of_sm) {
  if (orders.empty() || orders.front().empty()) return {};
  const Order& order = orders.front();
  const std::optional<std::size_t> first = first_group_size(orders);
  if (!first) return runs_of(order, 0, order.size(), partition_of_sm);
  std::vector<SmGroup> groups = runs_of(order, 0, *first, partition_of_sm);
  const std::vector<SmGroup> others =
      opened_at_largest(runs_of(order, *first, order.size(), partition_of_sm));
  groups.insert(groups.end(), others.begin(), others.end());
  return groups;
}

}  // namespace tilescope
