// SPDX-License-Identifier: Apache-2.0
// Which launches of a process are measured: those whose name matches, but the first `skip`, and `count` of
// them. Not communication between devices, unless it is asked for.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "profiler/injection/name_pattern.hpp"
#include "profiler/injection/profile_request.hpp"

namespace tilescope {

/// Whether a kernel waits for kernels of other devices, as NCCL's do: who waits for its end before those are
/// launched waits for ever. @param name demangled
inline bool is_communication(std::string_view name) {
  constexpr std::string_view kReturn = "void ";
  if (name.starts_with(kReturn)) name.remove_prefix(kReturn.size());
  return name.starts_with("nccl");  // ncclDevKernel_AllReduce_Sum_f32_RING_LL(...), ncclKernel_...
}

class LaunchFilter {
 public:
  /// @throws std::runtime_error for a filter that is no regular expression
  explicit LaunchFilter(const ProfileRequest& request)
      : pattern_(request.kernel_filter),
        communication_(request.communication),
        skip_(request.skip),
        count_(request.count) {}

  /// Whether kernels of this name are left out although they may match.
  bool leaves_out(const std::string& name) const { return !communication_ && is_communication(name); }
  /// Counts the launch. @param name demangled
  bool wants(const std::string& name) {
    if (leaves_out(name) || !matches(name)) return false;
    const std::int64_t number = seen_++;
    return number >= skip_ && number - skip_ < count_;
  }
  /// No later launch can be wanted.
  bool done() const { return seen_ >= skip_ && seen_ - skip_ >= count_; }

 private:
  bool matches(const std::string& name) {
    if (pattern_.in_all()) return true;
    const auto known = known_.find(name);
    if (known != known_.end()) return known->second;
    return known_.emplace(name, pattern_.in(name)).first->second;
  }

  NamePattern pattern_;
  bool communication_;
  std::int64_t skip_, count_, seen_ = 0;
  std::unordered_map<std::string, bool> known_;  // one entry a kernel, not a launch
};

}  // namespace tilescope
