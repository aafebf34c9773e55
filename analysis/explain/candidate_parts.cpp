// SPDX-License-Identifier: Apache-2.0
#include "analysis/explain/candidate_parts.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace tilescope {
namespace {

using enum TensorName;

bool is_matrix(const TileProgram& program, TensorName tensor) {
  const TensorExtent extent = tensor_extent(program.problem, tensor);
  return extent.cols > 1 && extent.indexing != TileIndexing::mn;
}

/// Of a tile in shared memory, where a row takes whole panels of its boxes.
std::int64_t bytes_on_chip(const TileProgram& program, TensorName tensor) {
  const std::int64_t bytes = program.tile_bytes(tensor);
  for (const Boxes& boxes : program.boxes) {
    if (boxes.tensor != tensor) continue;
    const TensorExtent extent = tensor_extent(program.problem, tensor);
    const std::int64_t row = extent.cols * extent.element_bytes;
    return bytes / row * rounded_up(row, boxes.panel_bytes);
  }
  return bytes;
}

OnChip on_chip_of(const TileProgram& program, std::int64_t heads) {
  OnChip chip;
  const auto matrices = [&program](const std::vector<Operand>& operands, auto visit) {
    for (const Operand& operand : operands) {
      if (operand.kind == AccessKind::load && is_matrix(program, operand.tensor)) {
        visit(bytes_on_chip(program, operand.tensor));
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
    if (operand.kind != AccessKind::load && is_matrix(program, operand.tensor) && !program.whole_head) {
      const TensorExtent extent = tensor_extent(program.problem, operand.tensor);
      chip.sums += heads * program.tile_bytes(operand.tensor) / extent.element_bytes * fp32;
    }
  }
  return chip;
}

int panel_of(std::int64_t row_bytes, Panels panels) {
  constexpr int kWidest = 128;
  int panel = kWidest;
  while (row_bytes % panel != 0 && (panels == Panels::that_divide || row_bytes < panel)) panel /= 2;
  return panel;
}

/// What the copy engine takes at the least.
constexpr int kLeastBoxBytes = 16;

}  // namespace

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

std::int64_t rows_beyond(const AttentionProblem& problem, std::int64_t rows) {
  return problem.batch * problem.heads * (rounded_up(problem.seqlen_q, rows) - problem.seqlen_q);
}

std::int64_t block_table_bytes(const TileProgram& program) {
  constexpr int kBlock = 128;
  constexpr std::int64_t kIndexBytes = 4;
  const Mask mask = program.problem.mask_of(0);
  const bool by_kv = program.axis == Axis::kv;
  const int owned = by_kv ? program.tile.block_n : program.tile.block_m;
  const std::int64_t rows = by_kv ? program.problem.seqlen_k : program.problem.seqlen_q;
  const auto indices = [](std::int64_t count) {
    return std::max(kSectorBytes, rounded_up(count * kIndexBytes, kSectorBytes));
  };
  std::int64_t bytes = 0;
  for (int block = 0; block * std::int64_t{kBlock} < rows; ++block) {
    const TileShape shape{kBlock, kBlock};
    const TileRuns visited = by_kv ? mask.q_tiles(shape, block) : mask.kv_tiles(shape, block);
    std::int64_t whole = 0;
    for (const TileRange& run : visited.runs()) whole += run.full_end - run.full_begin;
    const std::int64_t here = std::min<std::int64_t>(kBlock, rows - block * std::int64_t{kBlock});
    bytes +=
        (here + owned - 1) / owned * (2 * kSectorBytes + indices(visited.count() - whole) + indices(whole));
  }
  return program.problem.batch * program.problem.heads * bytes;
}

std::optional<TileProgram> by_boxes(TileProgram program, Panels panels, std::span<const TensorName> only) {
  if (!program.problem.key_lengths.empty()) return std::nullopt;
  bool possible = true;
  const auto add = [&](const std::vector<Operand>& operands) {
    for (const Operand& operand : operands) {
      const bool asked = only.empty() || std::ranges::find(only, operand.tensor) != only.end();
      if (operand.kind != AccessKind::load || !is_matrix(program, operand.tensor) || !asked) continue;
      const TensorExtent extent = tensor_extent(program.problem, operand.tensor);
      const std::int64_t row_bytes = extent.cols * extent.element_bytes;
      possible = possible && row_bytes % kLeastBoxBytes == 0;
      const bool by_n = extent.indexing == TileIndexing::n;
      program.boxes.push_back({operand.tensor, by_n ? program.tile.block_n : program.tile.block_m,
                               possible ? panel_of(row_bytes, panels) : kLeastBoxBytes});
    }
  };
  add(program.prologue);
  for (const auto& phase : program.phases) add(phase);
  return possible ? std::optional(program) : std::nullopt;
}

std::vector<Panels> panels_of(const AttentionProblem& problem) {
  const auto differ = [&problem](TensorName tensor) {
    const TensorExtent extent = tensor_extent(problem, tensor);
    const std::int64_t row = extent.cols * extent.element_bytes;
    return panel_of(row, Panels::of_128_bytes) != panel_of(row, Panels::that_divide);
  };
  if (differ(q) || differ(v)) return {Panels::of_128_bytes, Panels::that_divide};
  return {Panels::of_128_bytes};
}

std::string panels_text(const AttentionProblem& problem, Panels panels) {
  if (panels_of(problem).size() == 1) return "";
  return panels == Panels::of_128_bytes ? ", in panels of 128 bytes" : ", in panels that divide a row";
}

CandidateProgram& CandidateCollector::add(const std::string& name, const std::string& convention,
                                          std::vector<TileProgram> parts, std::int64_t kv_sharing) {
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
  std::map<TensorName, ReadWriteBytes> once;  // of tensors that several parts have, too
  for (const TileProgram& part : parts) {
    for (const TensorTraffic& tensor : tensor_traffic(part)) {
      const bool shared = tensor.tensor == k || tensor.tensor == v;
      const std::int64_t filled = tensor.filled_bytes / (shared ? kv_sharing : 1);
      candidate.bytes.read_bytes += tensor.load_bytes / (shared ? kv_sharing : 1) + filled;
      candidate.filled_bytes += filled;
      candidate.bytes.write_bytes += tensor.store_bytes + tensor.reduce_bytes;
      candidate.reduce_bytes += tensor.reduce_bytes;
      ReadWriteBytes& must = once[tensor.tensor];
      if (tensor.load_bytes > 0) must.read_bytes = std::max(must.read_bytes, tensor.compulsory_read_bytes);
      must.write_bytes = std::max(must.write_bytes, tensor.compulsory_write_bytes);
    }
    const WordAccesses words = part.word_accesses(0, 0);
    candidate.bytes.read_bytes += words.asked_bytes();
    candidate.bytes.write_bytes += words.told_bytes();
    candidate.copy_engine = candidate.copy_engine || !part.boxes.empty();
  }
  for (const auto& [tensor, must] : once) {
    candidate.must.read_bytes += must.read_bytes;
    candidate.must.write_bytes += must.write_bytes;
  }
  candidate.parts = std::move(parts);
  found_.push_back(std::move(candidate));
  return found_.back();
}

}  // namespace tilescope
