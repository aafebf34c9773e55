// SPDX-License-Identifier: Apache-2.0
// The NVTX ranges that a process has open. NVTX hands its calls to the library that NVTX_INJECTION64_PATH
// names, which is the injected library again.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "profiler/injection/name_pattern.hpp"

namespace tilescope {

/// Counts the open ranges whose name matches, over all threads: a backward pass launches its kernels on
/// another thread than the one that named it.
class NvtxRanges {
 public:
  /// @param expression ECMAScript regular expression, searched in the name; empty: every launch is inside
  /// @throws std::runtime_error
  explicit NvtxRanges(const std::string& expression) : pattern_(expression) {}

  bool inside() const { return pattern_.in_all() || open_ > 0; }

  // Nested ranges of one thread and, in NVTX's words, one domain.
  void push(const void* domain, const char* name);
  void pop(const void* domain);
  // Ranges that may begin and end anywhere.
  void start(std::uint64_t id, const char* name);
  void end(std::uint64_t id);
  /// A number for a range that starts, if nobody else gives one.
  std::uint64_t next_id() { return ++last_id_; }

 private:
  bool matches(const char* name) const { return !pattern_.in_all() && name && pattern_.in(name); }

  NamePattern pattern_;
  std::atomic<int> open_ = 0;
  std::atomic<std::uint64_t> last_id_ = 0;
  std::mutex mutex_;
  std::set<std::uint64_t> started_;  // ranges that match
};

/// Hooks the NVTX of one library of the process up to `ranges`, which must live for ever.
/// @param get_export_table as NVTX passes it to InitializeInjectionNvtx2 @returns whether it could be done
bool connect_nvtx(const void* (*get_export_table)(std::uint32_t), NvtxRanges& ranges);

}  // namespace tilescope
