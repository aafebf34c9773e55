// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/tiles/tile_memory.hpp"

namespace tilescope {

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
