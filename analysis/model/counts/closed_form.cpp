// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/closed_form.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "analysis/model/counts/covered_rows.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"

namespace tilescope {
namespace {

/// @param most no count of this problem is larger; in floating point, so that it cannot itself overflow
void require_countable(const AttentionProblem& problem, double most) {
  if (most < 9.2e18) return;
  throw BadInput("problem", describe(problem), "is too large: its bytes or FLOP are 2^63 or more");
}

void require_countable(const TileProgram& program) {
  const AttentionProblem& p = program.problem;
  double step =
      2.0 * static_cast<double>(p.depth_of(program.products)) * program.tile.block_m * program.tile.block_n;
  const auto bytes_of = [&](const Operand& operand) {
    const std::int64_t rows = std::max(program.tile.block_m, program.tile.block_n);
    return static_cast<double>(program.tile_bytes(operand.tensor) +
                               program.filled_bytes(operand, 0, 0, rows));
  };
  for (const auto* operands : {&program.prologue, &program.epilogue, &program.init}) {
    for (const Operand& operand : *operands) step += bytes_of(operand);
  }
  for (const auto& phase : program.phases) {
    for (const Operand& operand : phase) step += bytes_of(operand);
  }
  const double tiles = static_cast<double>(program.splits.count * program.head_splits) *
                       static_cast<double>(num_m_blocks(p.band(), program.tile)) *
                       static_cast<double>(num_n_blocks(p.band(), program.tile));
  require_countable(p, step * tiles * static_cast<double>(p.batch * p.heads));
}

double dense_flops(const AttentionProblem& p, Products products) {
  return 2.0 * static_cast<double>(p.batch * p.heads) * static_cast<double>(p.seqlen_q) *
         static_cast<double>(p.seqlen_k) * static_cast<double>(p.depth_of(products));
}

enum class ProgramPart : std::uint8_t { init, prologue, phase, epilogue };

/// Bytes that one operand moves in one part of the pass, and bytes of its distinct tiles there.
struct OperandBytes {
  std::int64_t moved = 0;
  std::int64_t distinct = 0;
};

/// Bytes of numbers of heads that these batch entries move: a tile of them for every CTA that comes to the
/// part. Batch entries share them, so that distinct ones are those of any entry.
OperandBytes head_number_bytes(const TileProgram& program, const EqualEntries& entries,
                               const TensorExtent& extent, ProgramPart part) {
  const bool prologue = part == ProgramPart::prologue;
  const std::int64_t blocks =
      prologue ? entries.whole.prologues
               : std::int64_t{program.num_blocks()} * (program.splits_walk() ? program.splits.count : 1);
  const std::int64_t bytes = extent.bytes() * entries.count * blocks;
  return {bytes, bytes > 0 ? extent.bytes() : 0};
}

/// Bytes of one tensor that these batch entries move.
OperandBytes operand_bytes(const TileProgram& program, const EqualEntries& entries, TensorName tensor,
                           ProgramPart part) {
  const AttentionProblem& p = program.problem;
  const TensorExtent extent = program.extent(tensor);
  const HeadSums& sums = ends_at_padding(tensor) ? entries.unpadded : entries.whole;
  const std::int64_t row_bytes = extent.cols * extent.element_bytes;
  const std::int64_t query_heads = entries.count * program.q_heads();
  const std::int64_t cta_heads = program.kv_heads ? entries.count * p.heads_kv : query_heads;
  const std::int64_t tensor_heads = entries.count * extent.heads * extent.splits;
  if (extent.indexing == TileIndexing::head) return head_number_bytes(program, entries, extent, part);
  if (part == ProgramPart::init) {
    const std::int64_t visits = extent.indexing == TileIndexing::n ? cta_heads : query_heads;
    return {extent.rows * row_bytes * visits, extent.rows * row_bytes * tensor_heads};
  }
  if (extent.indexing == TileIndexing::mn) {
    const std::int64_t bytes = sums.area * extent.element_bytes * query_heads;
    return {bytes, bytes};
  }
  const bool owned = (extent.indexing == TileIndexing::m) == (program.axis == Axis::q);
  if (part != ProgramPart::phase) {
    const bool prologue = part == ProgramPart::prologue;
    const std::int64_t ctas = cta_heads * (prologue                     ? program.head_splits
                                           : program.query_splits() > 1 ? program.query_splits()
                                                                        : extent.splits);
    return {(prologue ? sums.prologue_rows : sums.owned_rows) * row_bytes * ctas,
            (prologue ? sums.busy_rows : sums.owned_rows) * row_bytes * tensor_heads};
  }
  const std::int64_t moved = (owned ? sums.owned_step_rows : sums.inner_step_rows) * row_bytes * query_heads;
  if (adds_slots(program)) return {moved, moved};
  if (dq_slots(program).count > 1 && tensor == TensorName::dq_accum)
    return {moved, sums.slot_rows * row_bytes * query_heads};
  return {moved, (owned ? sums.busy_rows : sums.inner_rows) * row_bytes * tensor_heads};
}

/// Bytes of one tensor that all batch entries move.
OperandBytes operand_bytes(const TileProgram& program, const std::vector<EqualEntries>& all,
                           TensorName tensor, ProgramPart part) {
  OperandBytes sum;
  for (const EqualEntries& entries : all) {
    const OperandBytes bytes = operand_bytes(program, entries, tensor, part);
    sum.moved += bytes.moved;
    const bool shared = program.extent(tensor).indexing == TileIndexing::head;
    sum.distinct = shared ? std::max(sum.distinct, bytes.distinct) : sum.distinct + bytes.distinct;
  }
  return sum;
}

/// What crosses beside one operand's own bytes, see Boxes.
/// @param moved  these bytes
std::int64_t filled_bytes(const TileProgram& program, const Operand& operand, ProgramPart part,
                          std::int64_t moved) {
  if (program.boxes_of(operand) == nullptr) return 0;
  const AttentionProblem& p = program.problem;
  const TensorExtent extent = program.extent(operand.tensor);
  if (extent.indexing == TileIndexing::head) {
    return moved / program.tile_bytes(operand.tensor) * program.filled_bytes(operand, 0, 0, 1);
  }
  const bool by_m = extent.cut_by_m(), owned = by_m == (program.axis == Axis::q);
  const TileShape tile = program.access_tile();
  const int tile_rows = by_m ? tile.block_m : tile.block_n;
  // Heads whose tensors begin at the same place of a sector take the same: these come round. Splits of
  // partial results lie one after the other, as heads do.
  const std::int64_t heads = p.batch * extent.heads * extent.splits;
  const std::int64_t phases = std::min(
      heads, kSectorBytes / std::gcd(kSectorBytes, extent.rows * extent.cols * extent.element_bytes));
  const auto of_tiles = [&](int begin, int end) {  // of all heads
    const std::int64_t first = std::int64_t{begin} * tile_rows,
                       last = first + covered_rows(begin, end, tile_rows, extent.rows);
    std::int64_t bytes = 0;
    for (std::int64_t head = 0; head < phases; ++head) {
      bytes += (heads - head + phases - 1) / phases * program.filled_bytes(operand, head, first, last);
    }
    return bytes;
  };
  std::int64_t beside = 0;
  const Mask mask = program.walked_mask(0);
  const bool whole_matrix = extent.cut_by_m() && extent.cut_by_n();  // each of its tiles is visited once
  if (part == ProgramPart::init || whole_matrix)
    beside = of_tiles(0, static_cast<int>(ceil_div(extent.rows, std::int64_t{tile_rows})));
  for (int block = 0; part != ProgramPart::init && !whole_matrix && block < program.num_blocks(); ++block) {
    const TileRuns inner = program.phases.empty() ? TileRuns{} : program.inner_slices(mask, block);
    if (part == ProgramPart::phase && !owned) {
      for (const TileRange& run : inner.runs()) beside += of_tiles(run.begin, run.end);
    } else if (part == ProgramPart::phase) {
      beside += inner.count() / extent.splits * of_tiles(block, block + 1);
    } else if (part == ProgramPart::epilogue) {
      beside += program.query_splits() * of_tiles(block, block + 1);
    } else if (program.has_prologue(0, block)) {
      const int walks = program.splits_walk() ? program.splits.busy(inner) : 1;
      beside += walks * program.head_splits * of_tiles(block, block + 1);
    }
  }
  const bool by_kv_heads =
      program.kv_heads && part != ProgramPart::phase && (part != ProgramPart::init || !by_m);
  return (by_kv_heads ? p.heads_kv : program.q_heads()) / extent.heads * beside;
}

/// Slots of q tiles that some kv tile visits: those whose sums of dQ are begun.
std::int64_t begun_sums(const TileProgram& program) {
  const AttentionProblem& p = program.problem;
  const DqSlots slots = dq_slots(program);
  std::int64_t begun = 0;
  p.for_each_length([&](std::int64_t entries, std::int64_t entry) {
    const Mask mask = p.mask_of(entry);
    for (int m_block = 0; m_block < num_m_blocks(p.band(), program.tile); ++m_block) {
      begun += slots.filled(mask.kv_tiles(program.tile, m_block).count()) * entries;
    }
  });
  return begun * p.heads;
}

}  // namespace

std::vector<TensorTraffic> tensor_traffic(const TileProgram& program) {
  require_countable(program);
  const std::vector<EqualEntries> entries = entries_of(program);
  std::array<TensorTraffic, kNumTensors> all{};
  std::array<bool, kNumTensors> touched{};
  const auto add = [&](const std::vector<Operand>& operands, ProgramPart part) {
    for (const Operand& operand : operands) {
      const std::size_t index = static_cast<std::size_t>(operand.tensor);
      const OperandBytes bytes = operand_bytes(program, entries, operand.tensor, part);
      TensorTraffic& traffic = all[index];
      traffic.tensor = operand.tensor;
      const bool sum = operand.kind == AccessKind::store_then_reduce,
                 stored = sum || operand.kind == AccessKind::store;
      const std::int64_t beside = filled_bytes(program, operand, part, bytes.moved);
      const std::int64_t stores = sum ? bytes.distinct : stored ? bytes.moved : 0;
      (stored ? traffic.store_bytes : traffic.filled_bytes) += beside;
      traffic.store_bytes += stores;
      (operand.kind == AccessKind::load ? traffic.load_bytes : traffic.reduce_bytes) += bytes.moved - stores;
      // A tensor that starts with a store is made here; one that starts with a load or a reduction comes from
      // outside. A later part of the pass touches no tile of it that an earlier part left out, but epilogues,
      // which also run where nothing was visible.
      if (!touched[index] && !stored) traffic.compulsory_read_bytes = bytes.distinct;
      if (operand.kind != AccessKind::load) {
        traffic.compulsory_write_bytes = std::max(traffic.compulsory_write_bytes, bytes.distinct);
      }
      touched[index] = touched[index] || bytes.moved > 0;
    }
  };
  add(program.init, ProgramPart::init);
  add(program.prologue, ProgramPart::prologue);
  for (const std::vector<Operand>& phase : program.phases) add(phase, ProgramPart::phase);
  add(program.epilogue, ProgramPart::epilogue);
  std::vector<TensorTraffic> result;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (touched[i]) result.push_back(all[i]);
  }
  return result;
}

ClosedFormBytes closed_form_bytes(const TileProgram& program) {
  ClosedFormBytes total;
  for (const TensorTraffic& tensor : tensor_traffic(program)) {
    total.sm_l2_read_bytes += tensor.load_bytes + tensor.filled_bytes;
    total.sm_l2_write_bytes += tensor.store_bytes + tensor.reduce_bytes;
    total.compulsory_read_bytes += tensor.compulsory_read_bytes;
    total.compulsory_write_bytes += tensor.compulsory_write_bytes;
  }
  const bool sums = program.words.later_sum != WordAccesses{};
  const std::int64_t first_sums = sums ? begun_sums(program) : 0;
  const WordAccesses words =
      program.word_accesses(first_sums, sums ? program.visited_tiles() - first_sums : 0);
  total.word_read_bytes = words.asked_bytes();
  total.word_write_bytes = words.told_bytes();
  total.sm_l2_read_bytes += total.word_read_bytes;
  total.sm_l2_write_bytes += total.word_write_bytes;
  return total;
}

std::int64_t useful_flops(const TileProgram& program) {
  if (program.products.count() == 0) return 0;
  require_countable(program.problem, dense_flops(program.problem, program.products));
  return 2 * program.problem.depth_of(program.products) * program.problem.visible_pairs();
}

std::int64_t executed_flops(const TileProgram& program) {
  require_countable(program);
  return 2 * program.problem.depth_of(program.products) * program.computed_entries();
}

std::int64_t useful_flops(const AttentionProblem& problem, Direction direction) {
  require_countable(problem, dense_flops(problem, products_of(direction)));
  return 2 * problem.depth_of(products_of(direction)) * problem.visible_pairs();
}

std::int64_t paper_flops(const AttentionProblem& p, Direction direction) {
  require_countable(p, dense_flops(p, products_of(direction)));
  const std::int64_t flops =
      2 * p.seqlen_q * p.seqlen_k * p.depth_of(products_of(direction)) * p.batch * p.heads;
  return p.causal ? flops / 2 : flops;
}

std::int64_t exponentials(const TileProgram& program) {
  using enum PassName;
  const bool computes_probs = program.name == forward || program.name == softmax || program.name == dkdv ||
                              program.name == dq || program.name == dkdvdq || program.name == dqdkdv;
  return computes_probs ? program.problem.visible_pairs() : 0;
}

ReadWriteBytes compulsory_bytes(const AttentionProblem& problem, Direction direction) {
  std::int64_t queries = 0, keys = 0;  // of one head, over the batch
  problem.for_each_length([&](std::int64_t entries, std::int64_t entry) {
    const Mask mask = problem.mask_of(entry);
    queries += entries * mask.busy_queries();
    keys += entries * mask.busy_keys();
  });
  const auto whole = [&](TensorName name) { return tensor_extent(problem, name).bytes(); };
  const auto needed = [&](TensorName name) {
    const TensorExtent extent = tensor_extent(problem, name);
    return extent.heads * extent.cols * extent.element_bytes *
           (extent.indexing == TileIndexing::m ? queries : keys);
  };
  using enum TensorName;
  ReadWriteBytes bytes;
  bytes.read_bytes = needed(q) + needed(k) + (problem.shared_kv ? 0 : needed(v));
  for (const TensorName numbers : score_operands(problem)) bytes.read_bytes += whole(numbers);
  if (problem.score_mods.learned_sink) bytes.read_bytes += whole(sink);
  bytes.write_bytes = whole(out) + whole(lse);
  if (direction == Direction::backward) {
    bytes.read_bytes += needed(out) + needed(dout) + needed(lse);
    bytes.write_bytes = whole(dq) + whole(dk) + whole(dv);
    if (problem.score_mods.learned_sink) bytes.write_bytes += whole(dsink);
  }
  return bytes;
}

}  // namespace tilescope
