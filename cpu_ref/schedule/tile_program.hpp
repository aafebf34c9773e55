// SPDX-License-Identifier: Apache-2.0
// A pass (one kernel launch) as data: its grid, the order of its tiles, and every tile that it loads, stores
// or reduces. The CPU and GPU kernels execute these programs, the closed forms must equal their sums, the
// traffic simulator replays them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu_ref/schedule/boxes.hpp"
#include "cpu_ref/schedule/problem.hpp"
#include "cpu_ref/schedule/program_names.hpp"
#include "cpu_ref/schedule/splits.hpp"
#include "cpu_ref/schedule/tensors.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"

namespace tilescope {

/// One tile crossing the boundary between an SM and the memory beyond it.
struct TileAccess {
  TensorName tensor;
  AccessKind kind;
  int batch;           // 0 where batch entries share the tensor
  int head;            // of the tensor: a query head, or a key/value head for k, v and their gradients
  int m_block;         // -1 where the tensor has no q tiles
  int n_block;         // -1 where the tensor has no kv tiles; of partial results the split
  std::int64_t bytes;  // clipped to the matrix
  std::int64_t filled_bytes = 0;  // that cross with them, see Boxes
  bool operator==(const TileAccess&) const = default;
};

/// Accesses to words in memory by which CTAs agree, or that tell them what to do: loads, atomics and
/// reductions of a sector each, and plain stores of four bytes.
struct WordAccesses {
  std::int64_t asked = 0, told = 0, stored = 0;

  std::int64_t asked_bytes() const { return kSectorBytes * asked; }
  std::int64_t told_bytes() const { return kSectorBytes * told + 4 * stored; }
  WordAccesses operator+(WordAccesses other) const {
    return {asked + other.asked, told + other.told, stored + other.stored};
  }
  WordAccesses operator*(std::int64_t times) const { return {times * asked, times * told, times * stored}; }
  bool operator==(const WordAccesses&) const = default;
};

/// How a CTA looks up the pages of a tile of keys: equal parts, which divide its keys, each by themselves,
/// and those of K and V apart, or of both together where one phase loads both.
struct PageLookups {
  int parts = 1;
  bool each_operand = false;
  bool operator==(const PageLookups&) const = default;
};

/// A tensor and what a pass does to its current tile.
struct Operand {
  TensorName tensor;
  AccessKind kind;
  bool operator==(const Operand&) const = default;
};

/// How the CTAs of a pass come by their blocks.
enum class HandOut : std::uint8_t {
  to_who_retires,  // a CTA has one block; the next CTA begins where one has retired
  to_who_ends,     // CTAs stay, and ask for their next block shortly before they end one
  there_and_back,  // CTAs stay, and take one of every so-many-th block, in turn from either end
};

/// How a GPU kernel runs a pass on its tile; 0: as it does by itself.
struct PassLaunch {
  int warps = 0;   // of a CTA
  int stages = 0;  // tiles of a streamed operand that are in shared memory at a time
  bool operator==(const PassLaunch&) const = default;
};

/// What one CTA does. For the q axis and one block a CTA:
///
///   init                                            (at tile m; what a row's state begins with)
///   for h in its query heads:                       (one; or the group of a kv head, axis kv, kv_heads)
///     prologue at tile m                            (skipped when no inner tile is visible)
///     for each phase: for n in visible kv tiles: the phase's operands at (m, n)
///     epilogue at tile m
///
/// On the kv axis m and n change places, and prologue and epilogue stand outside the loop over the group's
/// query heads. A whole-head CTA (FlashAttention-1) runs `init` over every tile, then all its blocks in turn.
/// A pass without phases is elementwise: prologue and epilogue at each of its tiles.
struct TileProgram {
  PassName name = PassName::forward;
  AttentionProblem problem;
  TileShape tile;
  PassLaunch launch = {};
  Axis axis = Axis::q;
  bool kv_heads = false;    // CTAs are counted by key/value head and loop over the group's query heads
  bool whole_head = false;  // one CTA a head
  bool dense = false;       // visits every tile, masked or not (standard attention)
  Fp8Sums fp8_sums = Fp8Sums::fp32;
  Variant variant = Variant::own;  // of the forward pass
  bool single_launch = false;      // launched with the pass beside it: a CTA goes on from one to the other
  bool work_counter = false;  // as many CTAs as run at once, which ask a counter in memory for their blocks
  bool persistent = false;    // the same number, each with one of every so-many-th block
  std::vector<Operand> init, prologue;
  std::vector<std::vector<Operand>> phases;
  std::vector<Operand> epilogue;
  std::vector<Boxes> boxes;  // of operands of which more crosses than their bytes: what a kernel's row says
  /// The same: how many warps ask for each entry's bit in tables (visit_tables.hpp), in which CTAs find what
  /// they visit; 0: they compute it.
  int bit_reads = 0;
  PageLookups page_lookups = {};
  bool evict_first(TensorName tensor) const;
  /// Accesses to the counter of blocks, the flags of DqStart and the tables of visited tiles: by the pass, by
  /// each CTA, and beside each access of kind store_then_reduce that stores, or reduces.
  struct {
    WordAccesses pass, cta, first_sum, later_sum;
  } words;
  Products products;     // a visited tile
  bool ordered = false;  // reductions to the same place come in the order of the CTAs' blocks
  DqStart dq_start = DqStart::cleared;
  int dq_flags = 1;  // a q tile's, see DqStart
  /// A tile that the mask cuts has so many parts a side, of which those that it leaves something of are
  /// computed; of the streamed tensors, the rows of these are loaded, slice by slice.
  int diagonal_slices = 1;
  /// The rows of a q tile are those of all query heads of a group, one head after the other, which is how
  /// they lie in memory: wherever a program counts query heads and their rows, it counts key/value heads and
  /// q_rows() then.
  bool pack_gqa = false;
  /// Of packed heads: a q tile has the same queries of all of them, block_m / group of each, for those of one
  /// head after the other; so it visits the kv tiles of these queries.
  bool interleaves_heads = false;
  SplitKeys splits = {};  // of the forward pass, which keeps a part of the keys a CTA, and of combine; of
                          // dkdvdq, those of the queries of a kv tile
  int head_splits = 1;    // CTAs that share the query heads of a kv head, see ProgramOptions::query_splits
  Scan scan = Scan::ascending;
  Grid grid;

  /// Heads that q tiles are cut from, and rows of each.
  std::int64_t q_heads() const { return pack_gqa ? problem.heads_kv : problem.heads; }
  std::int64_t q_rows() const { return problem.seqlen_q * (problem.heads / q_heads()); }
  /// Heads that have the same queries in a q tile.
  int interleaved_heads() const { return interleaves_heads ? static_cast<int>(problem.group_size()) : 1; }
  /// A q tile's queries, of each of these.
  TileShape tile_of_queries() const { return {tile.block_m / interleaved_heads(), tile.block_n}; }
  /// Those of the problem, or of the same memory as packed heads; partial results with their splits; numbers
  /// of heads in rows of those that a CTA has.
  TensorExtent extent(TensorName tensor) const;
  /// Whether each CTA leaves a partial result, of its split of the keys.
  bool stores_partials() const { return name == PassName::forward && splits.count > 1; }
  /// CTAs that share a kv tile, and add what they have of dK and dV to sums.
  int query_splits() const { return name == PassName::dkdvdq ? splits.count * head_splits : 1; }
  /// Whether a CTA walks a part of the inner tiles of its block.
  bool splits_walk() const { return name != PassName::combine && splits.count > 1; }
  int num_blocks() const;  // tiles of the owned axis
  std::int64_t num_ctas() const { return grid.size(); }
  HandOut hand_out() const;
  /// Whether a CTA's reduction waits until the kv tiles in front of its own, or the first of them, have left
  /// theirs in the same q tile.
  bool waits_for_sums() const {
    return ordered || (name == PassName::dkdvdq && dq_start == DqStart::in_order);
  }
  /// How many kv tiles that are issued in front of one visit a q tile, or a slice of one, of access_tile().
  int kv_tiles_before(int batch, int m_block, int n_block) const;
  /// What the `cta`-th CTA to be issued owns: one block, or all of them for a whole-head CTA.
  CtaWork work(std::int64_t cta) const;
  /// The inner tile at position `step` of the walk over `tiles` that belongs to `block`. A whole-head CTA
  /// makes a walk for each of its blocks.
  int inner_tile(const CtaWork& work, const TileRuns& tiles, int block, int step) const {
    return tiles[scan_tile(scan, {0, tiles.count()}, whole_head ? block : work.wave_parity, step)];
  }
  /// What decides which tiles are visited in a batch entry: made once for many blocks.
  Mask walked_mask(std::int64_t batch) const { return dense ? problem.no_mask() : problem.mask_of(batch); }
  /// Inner tiles that block `block` visits in a batch entry, in all splits; of combine the splits.
  TileRuns inner_tiles(const Mask& mask, int block) const;
  TileRuns inner_tiles(int batch, int block) const { return inner_tiles(walked_mask(batch), block); }
  /// Those that a CTA visits of one of its blocks.
  TileRuns inner_tiles(const CtaWork& work, int block) const {
    return split_tiles(inner_tiles(work.batch, block), work.split);
  }
  /// Those of one split.
  TileRuns split_tiles(const TileRuns& all, int split) const {
    return splits_walk() ? splits.part_of(all, split) : all;
  }
  /// The slices of inner tiles that it accesses, counted from the first tile's first: all of its tiles, but
  /// for those of masked tiles that the mask hides whole.
  TileRuns inner_slices(const Mask& mask, int block) const;
  TileRuns inner_slices(int batch, int block) const { return inner_slices(walked_mask(batch), block); }
  TileRuns inner_slices(const CtaWork& work, int block) const {
    return split_tiles(inner_slices(work.batch, block), work.split);
  }
  /// What a tile of which tensors are accessed is made of: a slice of an inner tile, or a block.
  TileShape access_tile() const;
  /// Query heads that a CTA loops over: the group of a kv head, or a share of it; or one.
  int heads_per_cta() const;
  /// Query heads whose rows it has: these, or those that are packed.
  int query_heads_of_cta() const;
  /// Tiles visited by all CTAs.
  std::int64_t visited_tiles() const;
  /// Entries of the score matrix, and beyond its end, in the parts of tiles that all CTAs compute; each is
  /// one of every product.
  std::int64_t computed_entries() const;
  /// Whether the prologue is run for `block` of a batch entry: there is something to do with what it loads.
  bool has_prologue(int batch, int block) const;
  /// The same of one CTA.
  bool has_prologue(const CtaWork& work, int block) const {
    return splits_walk() ? !inner_tiles(work, block).empty() : has_prologue(work.batch, block);
  }
  /// Bytes of one full tile of a tensor.
  std::int64_t tile_bytes(TensorName tensor) const;
  /// An estimate for kernels that state no launch shape: each tile that a CTA loads has a buffer, streamed
  /// tiles `stages` of them. [bytes]
  std::int64_t shared_bytes(int stages = 2) const;
  /// What crosses, where the operand is among `boxes`, beside the bytes of rows [begin, end) of the `head`-th
  /// of its (batch, head) pairs, which are tiles of access_tile() from `begin` on; 0 elsewhere.
  /// @param cols  of each row; 0: all
  std::int64_t filled_bytes(const Operand& operand, std::int64_t head, std::int64_t begin, std::int64_t end,
                            std::int64_t cols = 0) const;
  /// What it is asked for by, among `boxes`, or null.
  const Boxes* boxes_of(const Operand& operand) const;
  /// Those of the whole pass, with so many accesses of kind store_then_reduce that store and that reduce.
  WordAccesses word_accesses(std::int64_t first_sums, std::int64_t later_sums) const {
    return words.pass + words.cta * num_ctas() + words.first_sum * first_sums + words.later_sum * later_sums;
  }
  /// Access of `operand` at the given tile (of access_tile()), with its bytes clipped to the matrix, and
  /// those of K and V to the keys that are no padding. `head` is a query head.
  TileAccess access(const Operand& operand, int batch, int head, int m_block, int n_block) const;
};

/// The choices of one pass.
struct PassOptions {
  TileShape tile;
  /// Times that a pass of standard attention over whole rows reads them: once where a row stays on chip.
  int row_reads = 1;
  PassLaunch launch = {};
  bool operator==(const PassOptions&) const = default;
};

/// The choices that turn an algorithm into programs.
struct ProgramOptions {
  /// By pass. An elementwise one (delta, init, convert) takes those of the pass that it serves.
  std::array<PassOptions, kNumPasses> passes;
  BackwardOrder backward = BackwardOrder::split;
  TileOrder order = TileOrder::row_major;
  int swizzled_heads = 1;  // for TileOrder::head_swizzled
  /// The same of dkdvdq where kv tiles add to dQ as they come; 0: no other than that of all passes.
  int fused_swizzled_heads = 0;
  Scan scan = Scan::ascending;
  int ctas_per_wave = 1;  // for Scan::sawtooth
  Fp8Sums fp8_sums = Fp8Sums::fp32;
  Variant variant = Variant::own;  // of the forward pass
  bool work_counter = false;       // of the forward pass, see TileProgram
  PageLookups page_lookups = {};
  /// How dQ begins in the fused backward pass; the ordered one begins in order. With parts of tiles, both
  /// clear.
  DqStart dq_start = DqStart::cleared;
  int dq_flags = 1;  // of both
  /// Whether CTAs of the fused backward pass are persistent where one head comes after the other, each kv
  /// tile is a CTA's and nobody waits for another.
  bool persistent = false;
  /// Parts a side of a tile that the mask cuts, see TileProgram; it divides both sides of every tile.
  int diagonal_slices = 1;
  SplitPolicy splits = {};  // of the forward pass
  /// CTAs that share a kv tile of the fused backward pass: each has as many of the query heads of the group
  /// as the others, where the greatest common divisor is 1 all; and a part of the queries. They add to fp32
  /// sums of dK and dV, which are cleared before and rounded after; in an ordered pass each to its slot. 1
  /// with parts of tiles.
  int query_splits = 1;
  /// The same of the ordered pass, and the heads of an L2 swizzle in which its CTAs come; 0: in the order of
  /// the other passes.
  int ordered_query_splits = 1, ordered_swizzled_heads = 0;
  /// Of a head the last kv tile first, which under a causal mask sees the fewest queries: those that wait for
  /// it have more to do. Only with heads of such a swizzle.
  bool ordered_shortest_first = false;
  void set_query_splits(int splits) { query_splits = ordered_query_splits = splits; }
  /// Of every pass, those of the ordered one among them.
  void set_order(TileOrder asked) {
    order = asked;
    ordered_swizzled_heads = 0;
    ordered_shortest_first = false;
  }
  /// Those of the backward order.
  int kv_tile_sharers() const {
    if (backward == BackwardOrder::ordered) return ordered_query_splits;
    return backward == BackwardOrder::fused ? query_splits : 1;
  }
  bool pack_gqa = false;           // of the forward pass, see TileProgram
  bool interleaves_heads = false;  // if it packs them, see TileProgram: a kernel's way, no choice

  PassOptions& operator[](PassName pass) { return passes[static_cast<std::size_t>(pass)]; }
  const PassOptions& operator[](PassName pass) const { return passes[static_cast<std::size_t>(pass)]; }
  /// The same tile for every pass, or for every pass of a direction.
  void set_tile(TileShape tile) {
    for (PassOptions& pass : passes) pass.tile = tile;
  }
  void set_tile(Direction direction, TileShape tile);
  static ProgramOptions with_tile(TileShape tile) {
    ProgramOptions options;
    options.set_tile(tile);
    return options;
  }
  bool operator==(const ProgramOptions&) const = default;
};

/// The passes of `algorithm`, in launch order.
/// Sources: standard: FlashAttention (arXiv:2205.14135) Algorithms 0 and 3; flash1: Algorithms 1, 2 and 4;
/// flash2: FlashAttention-2 (arXiv:2307.08691) Algorithms 1 and 2 and the split backward of its Triton
/// kernels.
/// @throws BadInput on an invalid problem or tile shape.
std::vector<TileProgram> build_programs(Algorithm algorithm, Direction direction,
                                        const AttentionProblem& problem, const ProgramOptions& options);

/// The passes of `algorithm` with tiles of their own, in launch order: all but the elementwise ones.
std::vector<PassName> tiled_passes(Algorithm algorithm, Direction direction, BackwardOrder backward);

/// FlashAttention-1's rule, Algorithm 1 line 1: Bc = ceil(M / 4d), Br = min(Bc, d).
/// @param sram_elements the papers' M [elements]
/// It need not fit: see flash1_sram_elements_needed().
TileShape flash1_tile_rule(std::int64_t sram_elements, std::int64_t head_dim);
/// Elements that Algorithm 1 keeps on chip with `tile`: Q, O (block_m x d), K, V (block_n x d), S.
std::int64_t flash1_sram_elements_needed(TileShape tile, std::int64_t head_dim);

}  // namespace tilescope
