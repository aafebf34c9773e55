// SPDX-License-Identifier: Apache-2.0
// One CTA of a pass on the CPU: where it stands in the grid, and its only way to slow memory. A tile access
// is recorded where it is made, so that an observer sees what the kernel did, not what it should have done.
#pragma once

#include <array>
#include <cstddef>

#include "cpu_ref/launch/ordered_turns.hpp"
#include "cpu_ref/launch/tile_observer.hpp"
#include "cpu_ref/numeric/tensor.hpp"
#include "cpu_ref/primitives/tile.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// The tile that a CTA works on. `head` is a query head, or one of packed rows; key/value tensors find
/// theirs.
struct TileCoord {
  int head = 0;
  int m_block = 0;
  int n_block = 0;  // of partial results the split
};

/// Rows and columns of a score tile that are computed. Its rows are those of the streamed tile, its columns
/// those of the owned one.
struct TilePart {
  int first_row, rows;
  int first_col, cols;
};

/// The parts of one tile, a row of them for each slice of the streamed tile.
class TileParts {
 public:
  void add(const TilePart& part) { parts_[count_++] = part; }
  const TilePart* begin() const { return parts_.data(); }
  const TilePart* end() const { return parts_.data() + count_; }

 private:
  std::array<TilePart, kMaxDiagonalSlices> parts_;
  std::size_t count_ = 0;
};

class Cta {
 public:
  Cta(const TileProgram& program, TensorSet& tensors, std::int64_t index, CtaLog* log);

  const TileProgram& program() const { return *program_; }
  const AttentionProblem& problem() const { return program_->problem; }
  int batch() const { return work_.batch; }
  /// Query heads [first_head, end_head): one, or the group of a key/value head, or a share of it.
  int first_head() const { return work_.first_head; }
  int end_head() const { return work_.end_head; }
  /// Blocks of the owned axis: one, or all of them for a whole-head CTA.
  int first_block() const { return work_.first_block; }
  int end_block() const { return work_.end_block; }
  /// Where it stores sums of dK and dV, among the CTAs that share a kv tile.
  int sum_slot() const;
  /// Whether the kv tile of a step is the first one in its slot of the q tile's dQ.
  bool begins_dq_slot(const DqSlots& slots, const TileCoord& at) const {
    return slots.before_in_slot(program_->kv_tiles_before(work_.batch, at.m_block, at.n_block)) == 0;
  }
  /// The tile at block `owned` of the pass's axis and block `inner` of the other.
  TileCoord coord(int head, int owned, int inner = 0) const {
    return program_->axis == Axis::q ? TileCoord{head, owned, inner} : TileCoord{head, inner, owned};
  }
  /// The inner tile at position `step` of the walk that belongs to `block`.
  int inner_tile(const TileRuns& tiles, int block, int step) const {
    return program_->inner_tile(work_, tiles, block, step);
  }
  /// Inner tiles that a block of the owned axis visits.
  TileRuns inner_tiles(int block) const { return program_->inner_tiles(work_, block); }
  /// Calls step(coord, whether no mask cuts the tile) for each of these, in the order of the walk.
  template <typename Step>
  void for_each_inner_tile(int head, int block, Step&& step) const {
    const TileRuns tiles = inner_tiles(block);
    for (int i = 0; i < tiles.count(); ++i) {
      const int inner = inner_tile(tiles, block, i);
      step(coord(head, block, inner), tiles.full(inner));
    }
  }
  /// What the queries of its batch entry see.
  const Mask& mask() const { return mask_; }
  /// Of the keys, that the CTA walks.
  int split() const { return work_.split; }
  /// That the rows of a q tile's head begin with: its own, or the first of a packed group.
  int first_query_head(const TileCoord& at) const;
  /// Queries and keys of a tile, clipped to the matrix.
  int queries(const TileCoord& at) const;
  int keys(const TileCoord& at) const;
  /// What is computed of a visited tile: all of it, or the parts that the mask leaves something of, where
  /// their heights are multiples of this.
  TileParts parts(const TileCoord& at, int height_multiple = 1) const;

  /// A tile's rows widened to fp32, in `buffer`, or in the tensor itself where they can be used as they lie.
  /// Padding is zero, whatever the tensor holds there: a probability of 0 does not undo a NaN. Of a streamed
  /// tile, rows in slices that the mask hides whole are not touched, here as below.
  TileView load(TensorName name, const TileCoord& at, Tile& buffer);
  /// The same of bf16 as words (bf16_matmul.hpp): of each two columns, in the tensor itself where words lie
  /// there, or of each two rows of v, which are copied, with zeros for those that are not touched.
  TileView load_column_pairs(TensorName name, const TileCoord& at, Tile& buffer);
  TileView load_row_pairs(const TileCoord& at, Tile& buffer);
  /// The same, always copied, to rows at `data`.
  void load_into(TensorName name, const TileCoord& at, float* data, std::ptrdiff_t stride);
  /// That of the first row of a tile of q, k or v: of all of them where blocks are tiles.
  float descale(TensorName of, const TileCoord& at) const;
  /// Multiplies the rows of a tile of v, or scores (queries, keys) of stored q and k, by their descales,
  /// whatever the blocks.
  void apply_value_descales(const TileCoord& at, Tile& values) const;
  void apply_score_descales(const TileCoord& at, Tile& products) const;
  /// Rounds the tile's rows to the tensor's type.
  void store(TensorName name, const TileCoord& at, const TileView& tile);
  /// tensor += tile, in fp32. Only inside in_turn().
  void reduce(TensorName name, const TileCoord& at, const TileView& tile);
  /// tensor = tile where it is the first one, else as reduce().
  void sum(TensorName name, const TileCoord& at, const TileView& tile, bool first);
  /// A tile of one fp32 value a query, of LSE, dPsum, maxima or sums; 0 where it is not loaded.
  void load_stats(TensorName name, const TileCoord& at, float* values);
  void store_stats(TensorName name, const TileCoord& at, const float* values);
  /// The numbers of the query heads whose rows the CTA has, from first_query_head() on.
  void load_heads(TensorName name, const TileCoord& at, float* values);
  /// The number of a head += value. Only inside in_turn().
  void reduce_head(TensorName name, const TileCoord& at, float value);

  /// Runs the reductions of the current step when all CTAs issued earlier have done theirs on its tile. They
  /// are told whether there are none of those.
  template <typename Reductions>
  void in_turn(Reductions&& reductions) {
    tickets_.take(reductions);
  }
  /// Tiles that CTAs of a pass add to, each with a queue before it.
  static std::int64_t num_queues(const TileProgram& program);
  /// Draws the tickets of all steps of the CTA. Calls of different CTAs must not overlap.
  void draw_tickets(OrderedTurns& turns);

  /// A new state for the step at `at`, or nullptr when nobody observes.
  TileState* observe(const TileCoord& at);

 private:
  /// Rows of K or V, from the first key of a tile on.
  struct PagedRows {
    TensorSet* tensors;
    TensorName name;
    int batch, head;
    std::int64_t first;

    std::byte* row(int index) const;
  };
  struct Region {
    std::byte* data;           // of its first element; null: its rows lie in pages
    std::ptrdiff_t row_bytes;  // from one row to the next
    int first, rows, cols;  // first row of the tile that is accessed; rows and columns, clipped to the matrix
    ElementType dtype;
    PagedRows pages = {};

    int end() const { return first + rows; }
    const std::byte* row(int r) const { return data ? data + (r - first) * row_bytes : pages.row(r); }
  };
  /// Of query heads whose rows the CTA has.
  int query_heads() const;
  void log_heads(TensorName name, AccessKind kind, const TileCoord& at);
  /// Where a tile lies; records the access.
  Region access(TensorName name, AccessKind kind, const TileCoord& at);
  bool streams(TileIndexing indexing) const {
    return indexing == (program_->axis == Axis::q ? TileIndexing::n : TileIndexing::m);
  }
  /// Slices of the streamed tile at `at` that are accessed, counted from the first tile's first.
  Interval slices(const TileCoord& at) const;
  int kv_head(const TileCoord& at) const;
  /// Keys of a tile that are no padding.
  int unpadded_keys(const TileCoord& at) const;
  /// Rows of zeros behind those of a region.
  int padding(TensorName name, const TileCoord& at, const Region& from) const {
    return ends_at_padding(name) ? keys(at) - from.end() : 0;
  }
  static void widen_rows(const Region& from, float* data, std::ptrdiff_t stride);
  static void narrow_rows(const TileView& tile, const Region& to);
  static void add_rows(const TileView& tile, const Region& to);

  const TileProgram* program_;
  TensorSet* tensors_;
  CtaLog* log_;
  CtaWork work_;
  Mask mask_;
  TurnTickets tickets_;
};

}  // namespace tilescope
