// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/tiles/tile_memory.hpp"

#include "cpu_ref/numeric/philox.hpp"

namespace tilescope {

PageTable::PageTable(std::uint32_t layout) : layout_(layout), taken_(std::size_t{1} << 15) {}

std::int64_t PageTable::place_of(std::int64_t page) {
  constexpr std::uint64_t kPlaceSeed = 1;  // another than that of the lines' homes and sets
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

TileMemory::TileMemory(const TileProgram& program, std::optional<std::uint32_t> layout)
    : program_(&program), tile_(program.access_tile()) {
  constexpr std::int64_t kPage = PageTable::kPageBytes;  // allocations of a page or more begin at one
  if (layout) pages_.emplace(*layout);
  std::int64_t address = 0;
  for (std::size_t name = 0; name < kNumTensors; ++name) {
    extents_[name] = program.extent(static_cast<TensorName>(name));
    addresses_[name] = address;
    address += (extents_[name].bytes() + kPage - 1) / kPage * kPage;
  }
}

}  // namespace tilescope
