// SPDX-License-Identifier: Apache-2.0
// What the link between two GPUs of a host carries at best: by loads and stores of the multiprocessors, and
// by the copy engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilescope {

/// One GPU of two moves so many bytes; rates are those of one direction.
struct LinkCeiling {
  std::string engine;      // kLinkEngines
  bool both_ways = false;  // whether the other GPU does the same meanwhile
  int ctas = 0;            // of 512 threads; 0 for the copy engine
  std::int64_t bytes = 0;  // of one transfer
  double per_second = 0;   // bytes, of the fastest sample
  double median_per_second = 0;
  bool operator==(const LinkCeiling&) const = default;
};

inline constexpr const char* kSmLoads = "SM loads";
inline constexpr const char* kSmStores = "SM stores";
inline constexpr const char* kCopyEngine = "copy engine";

/// Between the first two GPUs; takes a few seconds and 512 MiB of each.
/// @throws MachineLacks without two that reach each other's memory
std::vector<LinkCeiling> measure_links();

}  // namespace tilescope
