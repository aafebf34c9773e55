// SPDX-License-Identifier: Apache-2.0
#include "analysis/explain/candidate_programs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace tilescope {
namespace {

using enum TensorName;

constexpr Operand load(TensorName tensor) { return {tensor, AccessKind::load}; }
constexpr Operand store(TensorName tensor) { return {tensor, AccessKind::store}; }

TileProgram pass_of(const std::vector<TileProgram>& programs, PassName name) {
  return *std::find_if(programs.begin(), programs.end(),
                       [name](const TileProgram& program) { return program.name == name; });
}

/// A pass without inner tiles: it reads and writes each element of some tensors once.
TileProgram elementwise(const AttentionProblem& problem, Axis axis, std::vector<Operand> loads,
                        std::vector<Operand> stores) {
  TileProgram program;
  program.problem = problem;
  program.axis = axis;
  program.kv_heads = axis == Axis::kv;
  program.prologue = std::move(loads);
  program.epilogue = std::move(stores);
  return program;
}

bool is_matrix(const TileProgram& program, TensorName tensor) {
  const TensorExtent extent = tensor_extent(program.problem, tensor);
  return extent.cols > 1 && extent.indexing != TileIndexing::mn;
}

OnChip on_chip_of(const TileProgram& program, std::int64_t heads) {
  OnChip chip;
  const auto matrices = [&program](const std::vector<Operand>& operands, auto visit) {
    for (const Operand& operand : operands) {
      if (operand.kind == AccessKind::load && is_matrix(program, operand.tensor)) {
        visit(program.tile_bytes(operand.tensor));
      }
    }
  };
  matrices(program.prologue, [&chip, heads](std::int64_t bytes) { chip.kept += heads * bytes; });
  for (const auto& phase : program.phases) {
    matrices(phase, [&chip](std::int64_t bytes) {
      chip.streamed += bytes;
      chip.largest = std::max(chip.largest, bytes);
    });
  }
  const std::int64_t fp32 = element_bytes(ElementType::fp32);
  chip.scores = heads * program.tile.block_m * program.tile.block_n * fp32;
  for (const Operand& operand : program.epilogue) {
    if (operand.kind == AccessKind::store && is_matrix(program, operand.tensor) && !program.whole_head) {
      const TensorExtent extent = tensor_extent(program.problem, operand.tensor);
      chip.sums += heads * program.tile_bytes(operand.tensor) / extent.element_bytes * fp32;
    }
  }
  return chip;
}

class Collector {
 public:
  explicit Collector(Direction direction) : direction_(direction) {}

  /// @param parts what one launch does, the part that its grid belongs to first
  /// @param kv_sharing query heads of one CTA that one load of a K or V tile serves
  CandidateProgram& add(const std::string& name, const std::string& convention,
                        const std::vector<TileProgram>& parts, std::int64_t kv_sharing = 1) {
    const TileProgram& first = parts.front();
    CandidateProgram candidate;
    candidate.name = name;
    candidate.convention = convention;
    candidate.direction = direction_;
    candidate.tile = {0, 0};
    if (!first.phases.empty()) {
      candidate.tile = first.tile;
      candidate.num_ctas = first.num_ctas() / kv_sharing;
      candidate.blocks = first.grid.num_blocks;
      candidate.on_chip = on_chip_of(first, kv_sharing);
    }
    for (const TileProgram& part : parts) {
      for (const TensorTraffic& tensor : tensor_traffic(part)) {
        const bool shared = tensor.tensor == k || tensor.tensor == v;
        const std::int64_t filled = tensor.filled_bytes / (shared ? kv_sharing : 1);
        candidate.bytes.read_bytes += tensor.load_bytes / (shared ? kv_sharing : 1) + filled;
        candidate.filled_bytes += filled;
        candidate.bytes.write_bytes += tensor.store_bytes + tensor.reduce_bytes;
        candidate.reduce_bytes += tensor.reduce_bytes;
        candidate.must.read_bytes += tensor.load_bytes > 0 ? tensor.compulsory_read_bytes : 0;
        candidate.must.write_bytes += tensor.compulsory_write_bytes;
      }
      const WordAccesses words = part.word_accesses(0, 0);
      candidate.bytes.read_bytes += words.asked_bytes();
      candidate.bytes.write_bytes += words.told_bytes();
    }
    candidate.parts = parts;
    found_.push_back(std::move(candidate));
    return found_.back();
  }
  std::vector<CandidateProgram> take() { return std::move(found_); }

 private:
  Direction direction_;
  std::vector<CandidateProgram> found_;
};

std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

/// Rows that tiles of `rows` have beyond the queries, over all heads.
std::int64_t rows_beyond(const AttentionProblem& problem, std::int64_t rows) {
  return problem.batch * problem.heads * (rounded_up(problem.seqlen_q, rows) - problem.seqlen_q);
}

/// With the tensors that it loads copied by boxes of a tile's rows and of panels of 128 bytes, or narrower
/// ones that a row holds a whole number of. Empty where such boxes end with the tensors.
std::optional<TileProgram> by_boxes(TileProgram program) {
  const std::int64_t row_bytes = program.problem.head_dim * element_bytes(program.problem.dtype);
  if (row_bytes % 16 != 0 || !program.problem.key_lengths.empty()) return std::nullopt;
  const int panel = row_bytes % 128 == 0 || row_bytes > 128 ? 128 : row_bytes % 64 == 0 ? 64 : 32;
  const auto add = [&program, panel](const std::vector<Operand>& operands) {
    for (const Operand& operand : operands) {
      if (operand.kind != AccessKind::load || !is_matrix(program, operand.tensor)) continue;
      const bool by_n = tensor_extent(program.problem, operand.tensor).indexing == TileIndexing::n;
      program.boxes.push_back({operand.tensor, by_n ? program.tile.block_n : program.tile.block_m, panel});
    }
  };
  add(program.prologue);
  for (const auto& phase : program.phases) add(phase);
  const auto traffic = tensor_traffic(program);
  const bool fills = std::any_of(traffic.begin(), traffic.end(),
                                 [](const TensorTraffic& tensor) { return tensor.filled_bytes > 0; });
  return fills ? std::optional(program) : std::nullopt;
}

/// A K/V tile that serves several query heads of its group: as many rows of Q are on chip.
void add_shared_forward(Collector& collector, const TileProgram& flash2) {
  constexpr std::int64_t kMostRows = 256;
  const std::int64_t group = flash2.problem.group_size();
  for (std::int64_t heads = 2; heads <= group && heads * flash2.tile.block_m <= kMostRows; ++heads) {
    if (group % heads != 0) continue;
    collector.add("forward",
                  heads == group
                      ? "a K/V tile is loaded once for its group of query heads"
                      : fmt::format("a K/V tile is loaded once for {} query heads of its group", heads),
                  {flash2}, heads);
  }
}

void add_forward(Collector& collector, const AttentionProblem& problem, TileShape tile) {
  const ProgramOptions options = ProgramOptions::with_tile(tile);
  const TileProgram flash2 = build_programs(Algorithm::flash2, Direction::forward, problem, options).front();
  TileProgram without_lse = flash2;
  without_lse.epilogue = {store(out)};
  collector.add("forward", "", {flash2});
  collector.add("forward", "no lse stored", {without_lse});
  if (const auto boxed = by_boxes(flash2)) collector.add("forward", "tiles copied whole, as boxes", {*boxed});
  // As in PyTorch's memory-efficient attention, which also pads the lse.
  constexpr std::int64_t kLseRows = 32;
  const std::int64_t padding =
      rows_beyond(problem, kLseRows) * tensor_extent(problem, TensorName::lse).element_bytes;
  for (const bool stores_lse : {true, false}) {
    TileProgram reloading = stores_lse ? flash2 : without_lse;
    reloading.prologue.clear();
    reloading.phases = {{load(q), load(k), load(v)}};
    const std::string convention =
        stores_lse ? "Q loaded at every step" : "Q loaded at every step, no lse stored";
    collector.add("forward", convention, {reloading}).on_chip.in_slices = true;
    if (!stores_lse || padding == 0) continue;
    CandidateProgram& padded = collector.add("forward", convention + ", lse padded to 32 rows", {reloading});
    padded.on_chip.in_slices = true;
    padded.bytes.write_bytes += padding;
  }
  add_shared_forward(collector, flash2);
  collector.add("flash1 forward", "",
                {build_programs(Algorithm::flash1, Direction::forward, problem, options).front()});
}

/// As in PyTorch's memory-efficient attention: each product of a step loads its operands; the dQ sums are
/// read and written by one CTA at a time, and the last of them stores dQ; every CTA computes delta for all
/// queries.
void add_serial_backward(Collector& collector, const AttentionProblem& problem, const TileProgram& fused) {
  TileProgram deltas = fused;
  deltas.dense = true;
  deltas.prologue.clear();
  deltas.phases = {{load(out), load(dout), store(delta)}};
  deltas.epilogue.clear();
  const std::int64_t last_store =
      tensor_extent(problem, dq_accum).bytes() - tensor_extent(problem, dq).bytes();
  for (const bool keeps_v : {false, true}) {
    TileProgram main = fused;
    main.prologue = keeps_v ? std::vector{load(v)} : std::vector<Operand>{};
    main.phases = {{load(k), load(k), load(q), load(q), load(dout), load(dout), load(lse), load(delta),
                    load(dq_accum), store(dq_accum)}};
    if (!keeps_v) main.phases[0].push_back(load(v));
    CandidateProgram& serial =
        collector.add("backward, dQ read and written in turn",
                      keeps_v ? "operands loaded for each product but V" : "operands loaded for each product",
                      {main, deltas});
    serial.bytes.write_bytes -= last_store;
    serial.must.write_bytes -= last_store;
    serial.on_chip.in_slices = true;
  }
}

/// Backward passes of `problem`, whose heads_kv says by which heads dK and dV are summed.
void add_backward_by_kv_tile(Collector& collector, const AttentionProblem& problem, TileShape tile,
                             const std::string& convention) {
  ProgramOptions options = ProgramOptions::with_tile(tile);
  options.backward = BackwardOrder::fused;
  const TileProgram fused =
      pass_of(build_programs(Algorithm::flash2, Direction::backward, problem, options), PassName::dkdvdq);
  collector.add("backward, dQ reduced", convention, {fused});
  const std::string beside = convention.empty() ? "" : convention + ", ";
  // Reductions of a whole tile, into sums that are as many tiles long, as in FlashAttention-2.
  const auto whole_tiles = [&](const TileProgram& program, const std::string& how) {
    CandidateProgram& candidate = collector.add("backward, dQ reduced", beside + how, {program});
    const std::int64_t more = program.visited_tiles() * program.tile_bytes(dq_accum) - candidate.reduce_bytes;
    candidate.reduce_bytes += more;
    candidate.bytes.write_bytes += more;
  };
  if (problem.seqlen_q % tile.block_m != 0) whole_tiles(fused, "dQ sums in whole tiles");
  if (const auto boxed = by_boxes(fused)) {
    collector.add("backward, dQ reduced", beside + "tiles copied whole, as boxes", {*boxed});
    whole_tiles(*boxed, "tiles copied whole, as boxes, dQ sums in whole tiles");
  }
  if (problem.group_size() == 1) add_serial_backward(collector, problem, fused);
  options.backward = BackwardOrder::split;
  const TileProgram dkdv =
      pass_of(build_programs(Algorithm::flash2, Direction::backward, problem, options), PassName::dkdv);
  collector.add("backward, dK and dV", convention, {dkdv});
  if (problem.seqlen_q != problem.seqlen_k || problem.group_size() > 1) return;
  for (const int block_n : kCandidateBlocks) {
    if (block_n > tile.block_n) break;
    options[PassName::dq].tile = {tile.block_n, block_n};  // as many CTAs as the kv tiles have
    const TileProgram dq_pass =
        pass_of(build_programs(Algorithm::flash2, Direction::backward, problem, options), PassName::dq);
    collector.add("backward, dK/dV then dQ in one launch",
                  fmt::format("dQ by tiles of {}x{}", tile.block_n, block_n), {dkdv, dq_pass});
  }
}

void add_backward(Collector& collector, const AttentionProblem& problem, TileShape tile) {
  add_backward_by_kv_tile(collector, problem, tile, "");
  if (problem.group_size() > 1) {
    AttentionProblem expanded = problem;
    expanded.heads_kv = problem.heads;
    add_backward_by_kv_tile(collector, expanded, tile, "dK and dV by query head");
  }
  ProgramOptions options = ProgramOptions::with_tile(tile);
  collector.add(
      "backward, dQ", "",
      {pass_of(build_programs(Algorithm::flash2, Direction::backward, problem, options), PassName::dq)});
  options.backward = BackwardOrder::q_outer;
  collector.add(
      "backward, dK and dV reduced", "",
      {pass_of(build_programs(Algorithm::flash2, Direction::backward, problem, options), PassName::dqdkdv)});
  collector.add("flash1 backward", "",
                {build_programs(Algorithm::flash1, Direction::backward, problem, options).front()});
}

/// What is done beside the pass with the products, to each element once; in whole tiles of `rows` queries
/// where they are not 0.
void add_around_backward(Collector& collector, const AttentionProblem& problem, std::int64_t rows) {
  const auto by_query = [&problem](std::vector<Operand> loads, std::vector<Operand> stores) {
    return elementwise(problem, Axis::q, std::move(loads), std::move(stores));
  };
  const std::int64_t beyond = rows == 0 ? 0 : rows_beyond(problem, rows);
  const std::string whole = rows == 0 ? "" : fmt::format("sums in whole tiles of {} rows", rows);
  const auto padded = [&](TensorName tensor) {
    const TensorExtent extent = tensor_extent(problem, tensor);
    return beyond * extent.cols * extent.element_bytes;
  };
  const std::string beside = whole.empty() ? "" : ", " + whole;
  collector.add("delta", whole, {by_query({load(out), load(dout)}, {store(delta)})}).bytes.write_bytes +=
      padded(delta);
  collector
      .add("delta", "dQ sums zeroed" + beside,
           {by_query({load(out), load(dout)}, {store(delta), store(dq_accum)})})
      .bytes.write_bytes += padded(delta) + padded(dq_accum);
  collector.add("convert", "dQ sums to dQ" + beside, {by_query({load(dq_accum)}, {store(dq)})})
      .bytes.read_bytes += padded(dq_accum);
  collector.add("fill", "dQ sums zeroed" + beside, {by_query({}, {store(dq_accum)})}).bytes.write_bytes +=
      padded(dq_accum);
}

void add_passes_around_backward(Collector& collector, const AttentionProblem& problem) {
  for (const std::int64_t rows : {0, 64, 128}) {
    if (rows == 0 || rows_beyond(problem, rows) > 0) add_around_backward(collector, problem, rows);
  }
  if (problem.group_size() > 1) {
    collector.add(
        "sum", "dK or dV over the query heads of a group",
        {elementwise(problem, Axis::q, {load(q)}, {}), elementwise(problem, Axis::kv, {}, {store(dk)})});
  }
}

}  // namespace

std::vector<CandidateProgram> candidate_programs(const AttentionProblem& problem,
                                                 std::span<const Direction> directions) {
  validate(problem);
  std::vector<CandidateProgram> all;
  for (const Direction direction : directions) {
    Collector collector(direction);
    if (direction == Direction::backward) add_passes_around_backward(collector, problem);
    for (const int block_m : kCandidateBlocks) {
      for (const int block_n : kCandidateBlocks) {
        const TileShape tile{block_m, block_n};
        if (direction == Direction::forward) {
          add_forward(collector, problem, tile);
        } else {
          add_backward(collector, problem, tile);
        }
      }
    }
    std::ranges::move(collector.take(), std::back_inserter(all));
  }
  return all;
}

CandidateProgram candidate_of(const std::string& name, Direction direction, const TileProgram& program) {
  Collector collector(direction);
  CandidateProgram candidate = collector.add(name, "", {program});
  candidate.somebodys = true;
  return candidate;
}

}  // namespace tilescope
