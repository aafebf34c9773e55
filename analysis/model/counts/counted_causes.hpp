// SPDX-License-Identifier: Apache-2.0
// Bytes at SM<->L2 that no tile program asks for, each with the counter that saw them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/records/run_record.hpp"

namespace tilescope {

enum class CauseKind : std::uint8_t { spills, partial_sectors, atomics };

struct NamedCause {
  CauseKind kind;
  std::string name;        // "spills"
  std::string metric;      // "local_store_bytes"
  std::int64_t bytes = 0;  // below 0 where the cause saves bytes
  bool reads = false;      // at which side of SM<->L2 they are
  bool operator==(const NamedCause&) const = default;
};

/// Causes with bytes, those of writes first. What L1 served is not among them: see l1_load_hit_bytes.
/// @param metrics by name, of the sets `traffic` and `causes`; those that are missing name no cause
/// @param said  what the program says: its words are atomics that are no cause
std::vector<NamedCause> counted_causes(const std::map<std::string, double>& metrics,
                                       const ClosedFormBytes& said = {});

/// Bytes of all causes that read, or that write.
std::int64_t sum_of(const std::vector<NamedCause>& causes, bool reads);

}  // namespace tilescope
