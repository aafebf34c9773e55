// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/device_tables.hpp"

namespace tilescope {

DeviceVisitTables::DeviceVisitTables(const TileProgram& program, cudaStream_t stream)
    : blocks_of_entry_(program.problem.key_lengths.empty() ? 0 : program.num_blocks()) {
  const VisitTables tables = visit_tables(program);
  blocks_ = uploaded("blocks' visited tiles", tables.blocks, stream);
  tiles_ = uploaded("visited tiles", tables.tiles, stream);
  bits_ = uploaded("bits of visited tiles", tables.bits, stream);
}

DeviceVisits DeviceVisitTables::visits() const {
  return {static_cast<const VisitedTiles*>(blocks_.data()), static_cast<const VisitedTile*>(tiles_.data()),
          static_cast<const std::uint32_t*>(bits_.data()), blocks_of_entry_};
}

}  // namespace tilescope
