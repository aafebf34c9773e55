// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/sum_slots.hpp"

#include <algorithm>
#include <cmath>

#include "cpu_ref/schedule/program_parts.hpp"

namespace tilescope {
namespace {

/// Of all slots together: what is read in no time, and what a pass may take at most.
constexpr std::int64_t kLittleBytes = std::int64_t{24} << 20, kMostBytes = std::int64_t{512} << 20;

/// No q tile sees more kv tiles.
int most_kv_tiles(const VisibleBand& band, TileShape tile) {
  const std::int64_t keys = std::int64_t{band.left} + band.right + tile.block_m;
  const std::int64_t tiles = (keys + tile.block_n - 2) / tile.block_n + 1;
  return static_cast<int>(std::min<std::int64_t>(tiles, num_n_blocks(band, tile)));
}

/// Each slot takes time to read, and few of them time to wait: of the kv tiles of a head that are computed at
/// once, each adds to dQ half a step after the one in front of it in its slot. That is as long as all slots
/// take to read with the square root of (such kv tiles behind the first x entries of a step) / queries: a
/// device reads four bytes in the time in which an SM does five FLOP, and a step has ten FLOP an entry and
/// column.
double paying_slots(const AttentionProblem& problem, TileShape tile, int most_kv_tiles) {
  constexpr std::int64_t kCtasAtOnce = 132;  // any number of some device: the sums are the same on all
  // Under a mask each query head of a group has CTAs of its own, as a rule.
  const std::int64_t heads = problem.batch * (problem.masked() ? problem.heads : problem.heads_kv);
  const std::int64_t of_head = std::min<std::int64_t>(most_kv_tiles, ceil_div(kCtasAtOnce, heads));
  const double entries = static_cast<double>(of_head - 1) * tile.block_m * tile.block_n;
  return std::sqrt(entries / static_cast<double>(problem.batch * problem.heads * problem.seqlen_q));
}

bool has_dq_slots(const TileProgram& program) {
  return program.name == PassName::dkdvdq && program.ordered && program.dq_start == DqStart::in_order;
}

/// Of the pass that makes dQ.
TileShape tile_of_sums(const TileProgram& program) {
  const TileShape tile = program.tile;
  return adds_slots(program) ? TileShape{tile.block_m * program.splits.tiles, tile.block_n} : tile;
}

bool are_dkdv_sums(TensorName tensor) {
  return tensor == TensorName::dk_accum || tensor == TensorName::dv_accum;
}

bool has_dkdv_slots(const TileProgram& program) { return program.ordered && program.query_splits() > 1; }

/// Of a CTA that adds slots: fewer of few rows, since each is many bytes.
int rows_of_slots(std::int64_t rows) {
  constexpr std::int64_t kFewCtas = 512;
  return rows < kFewCtas * kRowsOfSums ? kRowsOfSums / 4 : kRowsOfSums;
}
/// @param tiles  see adds_slots()
void add_slots(TileProgram& convert, int tiles) {
  convert.phases = {std::move(convert.prologue)};
  convert.prologue.clear();
  convert.splits.tiles = tiles;
  convert.scan = Scan::ascending;
}

}  // namespace

void add_dq_slots(TileProgram& convert) {
  const AttentionProblem& problem = convert.problem;
  const int of_cta = rows_of_slots(problem.batch * problem.heads * problem.seqlen_q);
  int& rows = convert.tile.block_m;
  const int blocks = rows % of_cta == 0 ? rows / of_cta : 1;
  add_slots(convert, blocks);
  rows /= blocks;
}

void add_dkdv_slots(TileProgram& convert, int slots) {
  AttentionProblem& problem = convert.problem;
  add_slots(convert, slots);
  convert.tile.block_n = rows_of_slots(problem.batch * problem.heads_kv * problem.seqlen_k);
  problem.heads = problem.heads_kv;  // whose sums they are: a CTA walks through them once
}

DqSlots dq_slots(const AttentionProblem& problem, TileShape tile) {
  if (problem.mask.any()) return {};
  const int most = most_kv_tiles(problem.band(), tile);
  const std::int64_t bytes = 4 * problem.batch * problem.heads * problem.seqlen_q * problem.head_dim;
  const double paying = paying_slots(problem, tile, most);
  const bool few = most <= 3 * paying && most <= kMostBytes / bytes;
  if (most > 1 && (few || most <= kLittleBytes / bytes)) return {most, DqSlots::kOwn};
  // In turn, the flags of a slot lie in a row of dQ (DqStart): two of 4 bytes each.
  const auto count = std::min<std::int64_t>(
      {std::llround(std::sqrt(2.0) * paying), most, kMostBytes / bytes, problem.head_dim / 4});
  DqSlots slots;
  while (2 << slots.log2_count <= count) ++slots.log2_count;
  slots.count = 1 << slots.log2_count;
  return slots;
}

DqSlots dq_slots(const TileProgram& program) {
  const bool adds = adds_slots(program) && program.axis == Axis::q;
  return adds || has_dq_slots(program) ? dq_slots(program.problem, tile_of_sums(program)) : DqSlots{};
}

int filled_slots(const TileProgram& program, const Mask& mask, int block) {
  if (program.axis == Axis::kv) return program.splits.tiles;
  return dq_slots(program).filled(mask.kv_tiles(tile_of_sums(program), block / program.splits.tiles).count());
}

int sum_slot_of(const TileProgram& program, const CtaWork& work) {
  if (!has_dkdv_slots(program)) return 0;
  const int heads = program.heads_per_cta();
  return work.first_head / heads % program.head_splits + program.head_splits * work.split;
}

bool adds_slots(const TileProgram& program) {
  return program.name == PassName::convert && !program.phases.empty();
}

int slots_of(const TileProgram& program, TensorName tensor) {
  if (are_partial(tensor)) return program.splits.count;
  if (tensor == TensorName::dq_accum) return dq_slots(program).count;
  if (!are_dkdv_sums(tensor)) return 1;
  if (adds_slots(program)) return program.splits.tiles;
  return has_dkdv_slots(program) ? program.query_splits() : 1;
}

int slot_at(const TileProgram& program, TensorName tensor, int batch, int m_block, int n_block) {
  if (are_partial(tensor)) return n_block;
  const bool of_dq = tensor == TensorName::dq_accum;
  if (!of_dq && !are_dkdv_sums(tensor)) return 0;
  if (adds_slots(program)) return of_dq ? n_block : m_block;
  if (!of_dq) return has_dkdv_slots(program) ? m_block : 0;
  const DqSlots slots = dq_slots(program);
  return slots.count > 1 ? slots.slot(program.kv_tiles_before(batch, m_block, n_block)) : 0;
}

TensorExtent extent_in(const std::vector<TileProgram>& programs, TensorName tensor) {
  TensorExtent most = tensor_extent(programs.front().problem, tensor);
  for (const TileProgram& program : programs) {
    most.splits = std::max<std::int64_t>(most.splits, slots_of(program, tensor));
  }
  return most;
}

}  // namespace tilescope
