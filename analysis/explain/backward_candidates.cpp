// SPDX-License-Identifier: Apache-2.0
// Backward passes with the products as they are made: by FlashAttention-1 to -4, cuDNN, PyTorch's
// memory-efficient attention and Triton's tutorial.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/explain/candidate_parts.hpp"

namespace tilescope {
namespace {

using enum TensorName;

TileProgram flash2_pass(const AttentionProblem& problem, const ProgramOptions& options, PassName name) {
  const auto programs = build_programs(Algorithm::flash2, Direction::backward, problem, options);
  return *std::ranges::find(programs, name, &TileProgram::name);
}

std::int64_t loaded_bytes(const TileProgram& program, std::initializer_list<TensorName> tensors) {
  std::int64_t bytes = 0;
  for (const TensorTraffic& traffic : tensor_traffic(program)) {
    if (std::ranges::count(tensors, traffic.tensor) > 0) bytes += traffic.load_bytes;
  }
  return bytes;
}

/// Reductions of whole tiles into sums that are as many tiles long, of columns rounded up to `columns`, and
/// of dK and dV as well where these are added to.
void reduce_whole_tiles(CandidateProgram& candidate, std::int64_t columns) {
  const TileProgram& program = candidate.parts.front();
  const auto row = [&](TensorName tensor) {
    return kSumBytes * rounded_up(tensor_extent(program.problem, tensor).cols, columns);
  };
  std::int64_t bytes = program.visited_tiles() * program.tile.block_m * row(dq);
  if (program.query_splits() > 1) {
    bytes += program.num_ctas() * program.tile.block_n * (row(dk) + row(dv));
  }
  candidate.bytes.write_bytes += bytes - candidate.reduce_bytes;
  candidate.reduce_bytes = bytes;
}

/// Adds what is loaded where `tensors` tensors of one number a row (LSE, delta) are loaded in whole tiles.
void load_whole_rows(CandidateProgram& candidate, int tensors) {
  const TileProgram& program = candidate.parts.front();
  const std::int64_t row = tensor_extent(program.problem, lse).element_bytes;
  const std::int64_t whole = program.visited_tiles() * program.tile.block_m * row;
  candidate.bytes.read_bytes += tensors * (whole - loaded_bytes(program, {lse}));
}

/// As in FlashAttention-2, whose sums have rows of a multiple of 32 columns.
void add_flash2_style(CandidateCollector& collector, const TileProgram& fused, const std::string& beside) {
  constexpr std::int64_t kColumns = 32;
  CandidateProgram& candidate =
      collector.add("backward, dQ reduced", beside + "dQ sums and delta in whole tiles", {fused});
  const ReadWriteBytes clipped = candidate.bytes;
  reduce_whole_tiles(candidate, kColumns);
  load_whole_rows(candidate, 1);
  if (candidate.bytes == clipped) collector.drop_last();
}

/// As in cuDNN: tiles come by the copy engine, dQ goes by it. A kv tile of wide heads is walked twice, since
/// its sums do not fit on chip at once.
void add_cudnn_style(CandidateCollector& collector, const TileProgram& fused, const std::string& beside) {
  const auto boxed = by_boxes(fused, Panels::of_128_bytes);
  if (!boxed) return;
  const std::string convention = beside + "tiles copied whole, as boxes";
  const CandidateProgram once = collector.add(
      "backward, dQ reduced", convention + panels_text(fused.problem, Panels::of_128_bytes), {*boxed});
  if (once.filled_bytes == 0) collector.drop_last();
  CandidateProgram& twice =
      collector.add("backward, dQ reduced", convention + ", twice: for dV, then for dK and dQ", {*boxed});
  twice.bytes.read_bytes *= 2;
  twice.filled_bytes *= 2;
  twice.on_chip.sums /= 2;
}

/// As in FlashAttention-4, which adds dK and dV of a group's query heads to sums in memory.
void add_flash4_style(CandidateCollector& collector, const TileProgram& fused, const std::string& beside) {
  constexpr std::int64_t kColumns = 16;
  const auto boxed = by_boxes(fused, Panels::that_divide);
  if (!boxed) return;
  CandidateProgram& candidate =
      collector.add("backward, dQ reduced",
                    beside + "tiles and rows copied whole, as boxes, sums in whole tiles", {*boxed});
  const ReadWriteBytes as_boxes = candidate.bytes;
  reduce_whole_tiles(candidate, kColumns);
  load_whole_rows(candidate, 2);
  const bool plain = as_boxes == candidate.bytes && candidate.filled_bytes == 0;
  if (plain && fused.query_splits() == 1) collector.drop_last();
}

/// As in PyTorch's memory-efficient attention: each product of a step loads its operands; the dQ sums are
/// read and written, in whole tiles, by one CTA at a time, and the last of them stores dQ; every CTA computes
/// delta for all queries. The products with the sums have as many columns as a kv tile has rows. Sums of wide
/// heads' dK and dV are in memory as well. CTAs may be fewer than kv tiles, and have several in turn.
/// @param ctas of a head
void add_serial(CandidateCollector& collector, const AttentionProblem& problem, const TileProgram& fused,
                std::int64_t ctas) {
  TileProgram deltas = fused;
  deltas.dense = true;
  deltas.prologue.clear();
  deltas.phases = {{load(out), load(dout), store(delta)}};
  deltas.epilogue.clear();
  deltas.products = {};
  // Computed by each kv tile's CTA, or by fewer.
  const std::int64_t spared = fused.num_blocks() - ctas;
  ReadWriteBytes of_cta;
  for (const TensorTraffic& traffic : tensor_traffic(deltas)) {
    of_cta.read_bytes += traffic.load_bytes / fused.num_blocks();
    of_cta.write_bytes += traffic.store_bytes / fused.num_blocks();
  }
  const TileShape tile = fused.tile;
  const std::int64_t visits = fused.visited_tiles(), heads = problem.batch * problem.heads;
  const std::int64_t q_tiles = heads * num_m_blocks(problem.band(), tile), kv_tiles = fused.num_ctas();
  const std::int64_t gradient = tensor_extent(problem, dq).bytes();
  const std::int64_t sum_tile = kSumBytes * tile.block_m * tile.block_n;
  const auto tiles_of = [](std::int64_t columns, int width) { return (columns + width - 1) / width; };
  const std::int64_t dq_tiles = tiles_of(problem.head_dim, tile.block_n);
  const std::int64_t dkv_tiles =
      tiles_of(problem.head_dim, tile.block_m) + tiles_of(problem.value_dim(), tile.block_m);
  const auto add = [&](bool keeps_k, bool dkv_in_memory) {
    TileProgram main = fused;
    main.prologue = keeps_k ? std::vector{load(k)} : std::vector<Operand>{};
    main.phases = {{load(k), load(q), load(q), load(dout), load(dout), load(v), load(lse), load(delta)}};
    if (!keeps_k) main.phases[0].push_back(load(k));
    std::string convention =
        keeps_k ? "operands loaded for each product, K once for S" : "operands loaded for each product";
    if (dkv_in_memory) convention += ", sums of dK and dV in memory";
    CandidateProgram& serial =
        collector.add("backward, dQ read and written in turn", convention, {main, deltas});
    serial.bytes.read_bytes -= spared * of_cta.read_bytes;
    serial.bytes.write_bytes -= spared * of_cta.write_bytes;
    serial.blocks = ctas;
    serial.num_ctas = ctas * heads;
    // A CTA that leaves sums to the next one releases a lock.
    const std::int64_t left = (visits - q_tiles) * dq_tiles;
    serial.bytes.read_bytes += visits * dq_tiles * sum_tile;
    serial.bytes.write_bytes += left * (sum_tile + kSumBytes) + gradient;
    serial.must.write_bytes += gradient;
    if (dkv_in_memory) {
      serial.bytes.read_bytes += (visits - kv_tiles) * dkv_tiles * sum_tile;
      serial.bytes.write_bytes += (visits - kv_tiles) * dkv_tiles * sum_tile;
      serial.on_chip.sums = 0;
    }
    // Operands of products go around L1.
    serial.through_l1 = loaded_bytes(main, {lse, delta}) + ctas * of_cta.read_bytes;
    serial.on_chip.in_slices = true;
  };
  // K stays on chip where three slices of 32 columns hold it, sums in registers up to 128 columns. A kernel
  // for wider heads may have been taken.
  constexpr std::int64_t kSlices = 96, kNarrow = 64, kInRegisters = 128;
  if (problem.head_dim <= kSlices) add(true, false);
  if (problem.head_dim > kNarrow) add(false, false);
  if (problem.head_dim > kInRegisters) add(false, true);
}

/// As in flash-linear-attention, where a row's lse and delta lie beside those of the other heads: each comes
/// in a sector of its own, or with as many heads as a sector holds.
void add_rows_of_heads(CandidateCollector& collector, const std::string& name, const std::string& beside,
                       const TileProgram& program) {
  const std::int64_t apart = std::min<std::int64_t>(kSectorBytes, kSumBytes * program.problem.heads);
  if (apart == kSumBytes) return;
  CandidateProgram& candidate =
      collector.add(name, beside + "lse and delta with the heads beside each other", {program});
  const std::int64_t rows = loaded_bytes(program, {lse, delta}) / kSumBytes;
  candidate.bytes.read_bytes += rows * (apart - kSumBytes);
  candidate.library = "parallel_attn";
}

/// As in PyTorch's FlexAttention: one launch has CTAs that make dK and dV, and others that make dQ, by tiles
/// with the sides exchanged.
void add_either(CandidateCollector& collector, const TileProgram& dkdv) {
  const TileShape turned = {dkdv.tile.block_n, dkdv.tile.block_m};
  ProgramOptions options = ProgramOptions::with_tile(turned);
  options.backward = BackwardOrder::split;
  const TileProgram dq_pass = flash2_pass(dkdv.problem, options, PassName::dq);
  const auto add = [&](const char* convention) -> CandidateProgram& {
    CandidateProgram& either = collector.add("backward, dK and dV or dQ by CTA", convention, {dkdv, dq_pass});
    either.blocks = dkdv.num_blocks() + dkdv.problem.group_size() * dq_pass.num_blocks();
    either.num_ctas = dkdv.num_ctas() + dq_pass.num_ctas();
    return either;
  };
  add("dQ by tiles with their sides exchanged");
  if (!dkdv.problem.causal) return;
  CandidateProgram& looked_up = add("dQ by tiles with their sides exchanged, blocks looked up in tables");
  looked_up.bytes.read_bytes += block_table_bytes(dkdv) + block_table_bytes(dq_pass);
  looked_up.library = "flex_attention";
}

/// Backward passes of `problem`, whose heads_kv says by which heads dK and dV are summed.
void add_by_kv_tile(CandidateCollector& collector, const AttentionProblem& problem, TileShape tile,
                    const std::string& convention, std::span<const int> splits = {}) {
  ProgramOptions options = ProgramOptions::with_tile(tile);
  options.backward = BackwardOrder::fused;
  const TileProgram fused = flash2_pass(problem, options, PassName::dkdvdq);
  collector.add("backward, dQ reduced", convention, {fused});
  const std::string beside = convention.empty() ? "" : convention + ", ";
  add_flash2_style(collector, fused, beside);
  add_cudnn_style(collector, fused, beside);
  if (problem.group_size() == 1) {
    add_flash4_style(collector, fused, beside);
    add_serial(collector, problem, fused, fused.num_blocks());
    for (const int ctas : splits) {
      if (ctas < fused.num_blocks()) add_serial(collector, problem, fused, ctas);
    }
  }
  options.backward = BackwardOrder::split;
  const TileProgram dkdv = flash2_pass(problem, options, PassName::dkdv);
  collector.add("backward, dK and dV", convention, {dkdv});
  add_rows_of_heads(collector, "backward, dK and dV", beside, dkdv);
  if (convention.empty()) add_either(collector, dkdv);
  if (problem.seqlen_q != problem.seqlen_k || problem.group_size() > 1) return;
  for (const int block_n : kCandidateBlocks) {
    if (block_n > tile.block_n) break;
    options[PassName::dq].tile = {tile.block_n, block_n};  // as many CTAs as the kv tiles have
    const TileProgram dq_pass = flash2_pass(problem, options, PassName::dq);
    collector.add("backward, dK/dV then dQ in one launch",
                  fmt::format("dQ by tiles of {}x{}", tile.block_n, block_n), {dkdv, dq_pass});
  }
}

/// CTAs of the query heads of a group add to the sums of dK and dV.
void add_by_query_head(CandidateCollector& collector, const AttentionProblem& problem, TileShape tile) {
  AttentionProblem expanded = problem;
  expanded.heads_kv = problem.heads;
  add_by_kv_tile(collector, expanded, tile, "dK and dV by query head");
  ProgramOptions options = ProgramOptions::with_tile(tile);
  options.backward = BackwardOrder::fused;
  options.set_query_splits(static_cast<int>(problem.group_size()));
  add_flash4_style(collector, flash2_pass(problem, options, PassName::dkdvdq), "dK and dV added to sums, ");
}

}  // namespace

void add_backward(CandidateCollector& collector, const AttentionProblem& problem, TileShape tile,
                  std::span<const int> splits) {
  add_by_kv_tile(collector, problem, tile, "", splits);
  if (problem.group_size() > 1) add_by_query_head(collector, problem, tile);
  ProgramOptions options = ProgramOptions::with_tile(tile);
  const TileProgram dq_pass = flash2_pass(problem, options, PassName::dq);
  collector.add("backward, dQ", "", {dq_pass});
  add_rows_of_heads(collector, "backward, dQ", "", dq_pass);
  options.backward = BackwardOrder::q_outer;
  collector.add("backward, dK and dV reduced", "", {flash2_pass(problem, options, PassName::dqdkdv)});
  collector.add("flash1 backward", "",
                {build_programs(Algorithm::flash1, Direction::backward, problem, options).front()});
}

}  // namespace tilescope
