// SPDX-License-Identifier: Apache-2.0
// The partitions of an L2 out of latencies, and the groups of SMs out of the order in which they are given
// CTAs.
#include "profiler/calibration/l2/l2_partitions.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace tilescope {
namespace {

constexpr unsigned kSeed = 11;
constexpr int kLines = 96;

/// Of atomics to lines of either partition, as an H200 has them: near or far, and some clocks more or less.
std::vector<std::vector<double>> latencies(const std::vector<int>& partition_of_sm, double near, double far,
                                           double jitter) {
  std::mt19937 random(kSeed);
  std::uniform_real_distribution<double> some(-jitter, jitter);
  std::vector<int> homes(kLines);
  for (int& home : homes) home = static_cast<int>(random() % 2);
  std::vector<std::vector<double>> rows;
  for (const int partition : partition_of_sm) {
    rows.emplace_back();
    for (const int home : homes) rows.back().push_back((home == partition ? near : far) + some(random));
  }
  return rows;
}

TEST_CASE("SMs are told apart by what is near to them") {
  const std::vector<int> partitions = {0, 1, 1, 0, 0, 1, 0, 1};
  CHECK(partitions_from_latencies(latencies(partitions, 305, 500, 35)) == partitions);
  // Part 0 is the first SM's.
  CHECK(partitions_from_latencies(latencies({1, 1, 0, 1}, 305, 500, 35)) == std::vector<int>{0, 0, 1, 0});
}

TEST_CASE("one SM that was disturbed changes nothing for the others") {
  const std::vector<int> partitions = {0, 1, 1, 0, 0, 1};
  auto rows = latencies(partitions, 305, 500, 35);
  rows[4].assign(kLines, 700.0);
  CHECK(partitions_from_latencies(rows) == partitions);
}

TEST_CASE("an L2 of one partition has one partition") {
  const std::vector<int> alike(6, 0);
  CHECK(partitions_from_latencies(latencies(alike, 305, 500, 35)) == alike);
  CHECK(partitions_from_latencies(latencies({0, 1, 0, 1, 0, 1}, 300, 310, 20)) ==
        alike);  // differ too little
  CHECK(partitions_from_latencies(latencies({0, 1, 0, 1, 0, 1}, 400, 400, 200)) ==
        alike);  // differ by chance
  CHECK(partitions_from_latencies(std::vector<std::vector<double>>(6, std::vector<double>(kLines, 3.0))) ==
        alike);
  CHECK(partitions_from_latencies({}).empty());
}

using Order = std::vector<int>;

Order joined(const std::vector<Order>& groups) {
  Order order;
  for (const Order& group : groups) order.insert(order.end(), group.begin(), group.end());
  return order;
}

/// Launches that fill `first`, forwards or backwards, and then go round `circle`, each from the next group
/// on.
std::vector<Order> launches(Order first, std::vector<Order> circle) {
  std::vector<Order> orders;
  for (std::size_t launch = 0; launch < circle.size(); ++launch) {
    orders.push_back(joined({first, joined(circle)}));
    std::rotate(circle.begin(), circle.begin() + 1, circle.end());
    std::reverse(first.begin(), first.end());
  }
  return orders;
}

/// Consecutive SM ids, so many for each size.
std::vector<Order> numbered(const std::vector<int>& sizes, int id) {
  std::vector<Order> groups;
  for (const int size : sizes) {
    groups.emplace_back();
    for (int i = 0; i < size; ++i) groups.back().push_back(id++);
  }
  return groups;
}

/// By SM id, for groups that numbered() made.
std::vector<int> spread(const std::vector<int>& sizes, const std::vector<int>& partitions) {
  std::vector<int> partition_of_sm;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    partition_of_sm.insert(partition_of_sm.end(), static_cast<std::size_t>(sizes[i]), partitions[i]);
  }
  return partition_of_sm;
}

TEST_CASE("groups come out the same wherever a launch began") {
  // The GPCs of an H200, the first a partial one.
  const std::vector<int> sizes = {8, 16, 16, 18, 18, 8, 16, 16, 16};
  const std::vector<int> partition_of_sm = spread(sizes, {0, 0, 0, 0, 1, 0, 1, 1, 1});
  std::vector<Order> circle = numbered(sizes, 0);
  const Order first = circle.front();
  circle.erase(circle.begin());
  const std::vector<SmGroup> expected = {{8, 0}, {50, 0}, {18, 1}, {8, 0}, {48, 1}};
  std::vector<Order> orders = launches(first, circle);
  for (std::size_t launch = 0; launch < orders.size(); ++launch) {
    CAPTURE(launch);
    CHECK(issue_groups(orders, partition_of_sm) == expected);
    std::rotate(orders.begin(), orders.begin() + 1, orders.end());
  }
  CHECK(sms_of_partitions({expected}) == std::vector<int>{66, 66});
}

TEST_CASE("a circle without a first group is opened at its largest group") {
  const std::vector<int> sizes = {4, 6, 2, 6};
  std::vector<Order> orders = launches({}, numbered(sizes, 0));
  const std::vector<int> partition_of_sm = spread(sizes, {0, 1, 0, 1});
  for (int i = 0; i < 4; ++i) {
    CHECK(issue_groups(orders, partition_of_sm) == std::vector<SmGroup>{{6, 1}, {4, 0}, {6, 1}, {2, 0}});
    std::rotate(orders.begin(), orders.begin() + 1, orders.end());
  }
}

TEST_CASE("launches that show no circle leave the first as it is") {
  const std::vector<int> partition_of_sm = {0, 0, 1, 1, 0, 1};
  const Order order = {4, 0, 1, 2, 3, 5};
  const std::vector<SmGroup> runs = {{3, 0}, {3, 1}};
  CHECK(issue_groups({order}, partition_of_sm) == runs);
  CHECK(issue_groups({order, order, order}, partition_of_sm) == runs);
  CHECK(issue_groups({order, {0, 4, 1, 2, 3, 5}}, partition_of_sm) ==
        runs);  // only the first group turned round
  CHECK(issue_groups({order, {5, 1, 0, 4, 2, 3}}, partition_of_sm) == runs);  // no rule in it
  CHECK(issue_groups({}, partition_of_sm).empty());
}

TEST_CASE("one partition makes one group behind the first") {
  const std::vector<int> sizes = {2, 4, 4};
  std::vector<Order> circle = numbered(sizes, 0);
  const Order first = circle.front();
  circle.erase(circle.begin());
  const std::vector<SmGroup> groups = issue_groups(launches(first, circle), std::vector<int>(10, 0));
  CHECK(groups == std::vector<SmGroup>{{2, 0}, {8, 0}});
  CHECK(sms_of_partitions({groups}) == std::vector<int>{10});
  CHECK(sms_of_partitions({}).empty());
}

}  // namespace
}  // namespace tilescope
