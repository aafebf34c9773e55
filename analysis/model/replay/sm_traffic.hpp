// SPDX-License-Identifier: Apache-2.0
// What SMs ask of the L2 in a pass.
#pragma once

#include <cstdint>

#include "analysis/model/replay/tiles/run_tiles.hpp"

namespace tilescope {

struct SmTraffic {
  std::int64_t accesses = 0;  // of tiles
  std::int64_t load_bytes = 0;
  std::int64_t filled_bytes = 0;  // that come with loads, see Boxes
  std::int64_t store_bytes = 0;
  std::int64_t reduce_bytes = 0;
  std::int64_t sums = 0, first_sums = 0;  // accesses of kind sum; of these stores
  WordAccesses words = {};

  void add(AccessKind kind, std::int64_t count, std::int64_t bytes) {
    accesses += count;
    if (kind == AccessKind::load) load_bytes += bytes;
    if (kind == AccessKind::store) store_bytes += bytes;
    if (kind == AccessKind::store_then_reduce) sums += count;
    if (reduces(kind)) reduce_bytes += bytes;
  }
  /// What crosses with tiles, see Boxes.
  void add_beside(AccessKind kind, std::int64_t bytes) {
    (kind == AccessKind::load ? filled_bytes : store_bytes) += bytes;
  }
  void add(const RunTiles& run) {
    for (const OperandTiles& tiles : run.operands()) {
      add(tiles.kind, run.ctas(), tiles.bytes(run.ctas()));
      add_beside(tiles.kind, tiles.filled_bytes);
    }
  }
  /// So many tiles of sums, of so many bytes, were first stored.
  void begin_sums(std::int64_t tiles, std::int64_t bytes) {
    first_sums += tiles;
    store_bytes += bytes;
    reduce_bytes -= bytes;
  }
  /// The same so many times.
  void add(const SmTraffic& other, std::int64_t times) {
    accesses += times * other.accesses;
    load_bytes += times * other.load_bytes;
    filled_bytes += times * other.filled_bytes;
    store_bytes += times * other.store_bytes;
    reduce_bytes += times * other.reduce_bytes;
    sums += times * other.sums;
  }
  /// When all CTAs have retired.
  void add_words(const TileProgram& program) { words = program.word_accesses(first_sums, sums - first_sums); }
  std::int64_t sm_l2_read_bytes() const { return load_bytes + filled_bytes + words.asked_bytes(); }
  std::int64_t sm_l2_write_bytes() const { return written_bytes() + words.told_bytes(); }
  std::int64_t written_bytes() const { return store_bytes + reduce_bytes; }
  /// What may be found in L2: a store fetches nothing.
  std::int64_t looked_up_bytes() const { return load_bytes + reduce_bytes; }
  /// Bytes of loads and reductions found in L2 / bytes of all loads and reductions; 1 for a pass without any.
  double hit_rate(std::int64_t dram_read_bytes) const {
    if (looked_up_bytes() == 0) return 1.0;
    return 1.0 - static_cast<double>(dram_read_bytes) / static_cast<double>(looked_up_bytes());
  }
  bool operator==(const SmTraffic&) const = default;
};

}  // namespace tilescope
