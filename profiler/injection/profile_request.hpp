// SPDX-License-Identifier: Apache-2.0
// What the command line asks of the injected library, and how it reaches it: one environment variable, which
// every process of the command inherits.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "profiler/timing/timed_samples.hpp"

namespace tilescope {

struct ProfileRequest {
  enum class What { counters, trace };  // hardware counters, or times without them

  What what = What::counters;
  std::string folder;  // absolute; every process writes a file of its own into it
  std::string metrics = "traffic";
  std::int64_t part = kWhole;  // of split_by_pass, counted from 0; kWhole: all together, by kernel replay
  std::string kernel_filter;  // ECMAScript regular expression, searched in the demangled name; "" matches all
  std::string nvtx_filter;    // the same for names of NVTX ranges: launches inside one count; "" all do
  L2State l2 = L2State::cold;  // warm: as the command left it
  std::int64_t skip = 0;       // matching launches of a process to let pass first
  std::int64_t count = std::numeric_limits<std::int64_t>::max();  // matching launches of a process to measure
  bool communication = false;  // measure kernels that wait for other devices too (is_communication)

  static constexpr std::int64_t kWhole = -1;
  bool operator==(const ProfileRequest&) const = default;
};

inline constexpr const char* kRequestVariable = "TILESCOPE_PROFILE";

std::string to_text(const ProfileRequest& request);
/// @throws BadInput for text that to_text did not write
ProfileRequest parse_profile_request(const std::string& text);
/// The request in this process's environment, if there is one. @throws BadInput
std::optional<ProfileRequest> request_from_environment();

}  // namespace tilescope
