// SPDX-License-Identifier: Apache-2.0
// The partitions of a split L2, each beside some of the SMs, and the order in which CTAs are given to the SMs
// beside them. Found from measurements; plain data and functions without CUDA.
#pragma once

#include <vector>

namespace tilescope {

/// SMs that stand beside one partition of the L2 and are given their CTAs one after the other.
struct SmGroup {
  int sms = 0;
  int partition = 0;  // counted from 0, the partition beside SM 0
  bool operator==(const SmGroup&) const = default;
};

/// How a grid of one CTA an SM is spread over the partitions.
struct L2Partitions {
  /// In the order in which CTAs are given. Launches begin at different groups, in turn, but for a first one
  /// that all of them fill first: it stays first, and of the others the largest follows it.
  std::vector<SmGroup> groups;
  bool operator==(const L2Partitions&) const = default;
};

/// Number of SMs beside each partition.
std::vector<int> sms_of_partitions(const L2Partitions& partitions);

/// The partition that each SM is beside, from the latencies of atomics of each SM to the same lines: lines
/// that are near to the SMs of one partition are far from those of the other, so the sign of two SMs'
/// correlation tells whether they stand beside the same partition. All are beside partition 0 where latencies
/// differ little, or go neither with nor against each other: such an L2 is one.
/// @param latencies (sms, lines), in any unit
/// @returns (sms,) 0 for the first SM and those that are beside its partition, 1 for the others
std::vector<int> partitions_from_latencies(const std::vector<std::vector<double>>& latencies);

/// Runs of CTAs, in the order of L2Partitions::groups.
/// @param orders for each launch of one CTA an SM, the SM of each CTA; every launch names the same SMs. If no
/// two of them begin at different groups, the first stays as it is: no first group can be told from the rest.
/// @param partition_of_sm by SM id, for each SM of `orders`
std::vector<SmGroup> issue_groups(const std::vector<std::vector<int>>& orders,
                                  const std::vector<int>& partition_of_sm);

}  // namespace tilescope
