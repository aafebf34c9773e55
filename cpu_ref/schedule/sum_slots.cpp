// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/sum_slots.hpp"

#include <algorithm>

#include "cpu_ref/schedule/program_parts.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
/// Of all slots together: what L2 keeps beside operands, and what a pass may take at most.
constexpr std::int64_t kKeptBytes = 64 * kMiB, kMostBytes = 512 * kMiB;
/// One more slot for so many keys that a query sees on the mean: they are read in 4 % of the time of its
/// products.
constexpr int kKeysOfSlot = 1024;

std::int64_t visible_keys(const VisibleBand& band, int query) {
  return std::max(0, band.last_key(query) - band.first_key(query) + 1);
}

/// Of the first, the middle and the last query.
std::int64_t mean_keys(const VisibleBand& band) {
  const int last = band.seqlen_q - 1;
  return (visible_keys(band, 0) + 4 * visible_keys(band, last / 2) + visible_keys(band, last)) / 6;
}

/// No q tile sees more kv tiles.
int most_kv_tiles(const VisibleBand& band, TileShape tile) {
  const std::int64_t keys = std::int64_t{band.left} + band.right + tile.block_m;
  const std::int64_t tiles = (keys + tile.block_n - 2) / tile.block_n + 1;
  return static_cast<int>(std::min<std::int64_t>(tiles, num_n_blocks(band, tile)));
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
  const VisibleBand band = problem.band();
  const int most = most_kv_tiles(band, tile);
  const std::int64_t bytes = 4 * problem.batch * problem.heads * problem.seqlen_q * problem.head_dim;
  const std::int64_t paying = std::max(kKeptBytes / bytes, 1 + mean_keys(band) / kKeysOfSlot);
  const auto fitting = static_cast<int>(std::min<std::int64_t>({paying, kMostBytes / bytes, most}));
  if (fitting < 2) return {};
  if (fitting == most) return {most, 0};
  // In turn, the flags of a slot lie in a row of dQ (DqStart): two of 4 bytes each.
  const int flagged = std::min(fitting, static_cast<int>(problem.head_dim / 4));
  DqSlots slots{.log2_tiles = 0};
  while (slots.filled(most) > flagged) ++slots.log2_tiles;
  slots.count = slots.filled(most);
  return slots.count > 1 ? slots : DqSlots{};
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
