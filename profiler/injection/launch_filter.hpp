// SPDX-License-Identifier: Apache-2.0
// Which launches of a process are measured: those whose name matches, but the first `skip`, and `count` of
// them.
#pragma once

#include <regex>
#include <string>
#include <unordered_map>

#include "profiler/injection/profile_request.hpp"

namespace tilescope {

class LaunchFilter {
 public:
  /// @throws std::regex_error for a filter that is no regular expression
  explicit LaunchFilter(const ProfileRequest& request)
      : all_(request.kernel_filter.empty()),
        expression_(request.kernel_filter),
        skip_(request.skip),
        count_(request.count) {}

  /// Counts the launch. @param name demangled
  bool wants(const std::string& name) {
    if (!matches(name)) return false;
    const std::int64_t number = seen_++;
    return number >= skip_ && number - skip_ < count_;
  }
  /// No later launch can be wanted.
  bool done() const { return seen_ >= skip_ && seen_ - skip_ >= count_; }

 private:
  bool matches(const std::string& name) {
    if (all_) return true;
    const auto known = known_.find(name);
    if (known != known_.end()) return known->second;
    return known_.emplace(name, std::regex_search(name, expression_)).first->second;
  }

  bool all_;
  std::regex expression_;
  std::int64_t skip_, count_, seen_ = 0;
  std::unordered_map<std::string, bool> known_;  // one entry a kernel, not a launch
};

}  // namespace tilescope
