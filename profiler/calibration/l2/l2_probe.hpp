// SPDX-License-Identifier: Apache-2.0
// What a device's L2 keeps and which SMs stand beside which partition of it, measured.
#pragma once

#include <vector>

#include "profiler/calibration/l2/l2_partitions.hpp"
#include "profiler/calibration/l2/l2_residency.hpp"

namespace tilescope {

/// Times atomics from each SM to the same lines. Needs no counters.
/// @returns by SM id, as partitions_from_latencies() has it; -1 for ids below the largest that no SM has
/// @throws MachineLacks without a device, or one that does not give every SM a CTA; DriverError
std::vector<int> measure_partitions_of_sms();

/// Looks on which SM each CTA of several launches runs. Needs no counters.
/// @throws MachineLacks without a device, or one that does not give every SM a CTA; DriverError
L2Partitions measure_l2_partitions(const std::vector<int>& partition_of_sm);

/// Goes over footprints several times each, and counts what comes from DRAM. Takes 16 times the L2 of device
/// memory.
/// @param partition_of_sm as measure_partitions_of_sms() has it; kReadByPartition is left out where that is
/// one for all
/// @throws MachineLacks without a device, that much memory, or libcupti or the permission to count
std::vector<L2Residency> measure_l2_residency(const std::vector<int>& partition_of_sm);

}  // namespace tilescope
