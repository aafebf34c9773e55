// SPDX-License-Identifier: Apache-2.0
// The record of kernels in somebody's command, schema "tilescope.kernels/1".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/injection/event_file.hpp"

namespace tilescope {

inline constexpr std::string_view kKernelsSchema = "tilescope.kernels/1";

struct KernelRecord {
  std::vector<std::string> argv;          // of tilescope, the command included
  std::string when;                       // ISO 8601, UTC
  std::string metrics;                    // as asked for
  std::optional<std::int64_t> exit_code;  // of the command; 128 + signal if it was killed
  bool complete = false;  // every process of the command came to its end, no counters were lost
  std::vector<CollectionFacts> collections;  // one for each kind of device that was used
  std::vector<std::string> messages;         // why something is missing
  std::vector<KernelMeasurement> kernels;    // in order of launch within a process
  bool operator==(const KernelRecord&) const = default;
};

nlohmann::ordered_json kernel_record_schema();
std::string to_json_text(const KernelRecord& record);
/// @param source what error messages call the text, usually its path
/// @throws BadInput naming the source on damaged JSON or another schema
KernelRecord parse_kernel_record(const std::string& source, std::string_view text);

/// Adds to each kernel what was measured, in another run of the same command, of the launch that has its name
/// and geometry and comes as often before. @returns how many found none
std::int64_t join_runs(std::vector<KernelMeasurement>& kernels, const std::vector<KernelMeasurement>& other);

}  // namespace tilescope
