// SPDX-License-Identifier: Apache-2.0
// Where in physical memory the pages of tensors lie that are placed at random.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tilescope {

/// Pages at random places, no two at one. A page is given its place when it is first asked for: tensors that
/// a pass does not touch may be larger than any memory.
class PageTable {
 public:
  static constexpr std::int64_t kPageBytes = std::int64_t{2} << 20;  // of CUDA's virtual memory management

  /// @param layout  0, 1, ...: layouts are independent of one another, and the same on every machine
  explicit PageTable(std::uint32_t layout);

  /// Number of the physical page that holds `page`: below 2^15, which are 64 GiB, while few are taken.
  std::int64_t place_of(std::int64_t page);
  /// Calls visit(physical address, bytes) for each page's share of the bytes from `address` on.
  template <typename Visitor>
  void for_each_piece(std::int64_t address, std::int64_t bytes, Visitor&& visit) {
    for (std::int64_t left = bytes; left > 0;) {
      const std::int64_t at = address % kPageBytes, here = std::min(left, kPageBytes - at);
      visit(place_of(address / kPageBytes) * kPageBytes + at, here);
      address += here;
      left -= here;
    }
  }

 private:
  std::uint32_t layout_, draws_ = 0;
  std::unordered_map<std::int64_t, std::int64_t> places_;  // by page
  std::vector<bool> taken_;                                // by place
};

}  // namespace tilescope
