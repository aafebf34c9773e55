// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

namespace tilescope {

/// Appends what is not there yet: each thing once, in the order of its first appearance.
template <typename Item>
void add_new(std::vector<Item>& items, const Item& item) {
  if (std::find(items.begin(), items.end(), item) == items.end()) items.push_back(item);
}

}  // namespace tilescope
