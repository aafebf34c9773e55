// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/tiles/page_table.hpp"

#include "cpu_ref/numeric/philox.hpp"

namespace tilescope {
namespace {

constexpr std::size_t kPlaces = std::size_t{1} << 15;
constexpr std::uint64_t kPlaceSeed = 1;  // another than that of the lines' homes and sets

}  // namespace

PageTable::PageTable(std::uint32_t layout) : layout_(layout), taken_(kPlaces) {}

std::int64_t PageTable::place_of(std::int64_t page) {
  const auto [entry, added] = places_.try_emplace(page, 0);
  if (!added) return entry->second;
  if (2 * places_.size() > taken_.size()) taken_.resize(2 * taken_.size());  // a free place is drawn soon
  std::size_t place;
  do {
    place = philox4x32(kPlaceSeed, {{draws_++, layout_, 0, 0}}).x[0] % taken_.size();
  } while (taken_[place]);
  taken_[place] = true;
  entry->second = static_cast<std::int64_t>(place);
  return entry->second;
}

}  // namespace tilescope
