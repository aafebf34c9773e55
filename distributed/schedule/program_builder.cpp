// SPDX-License-Identifier: Apache-2.0
#include "distributed/schedule/program_builder.hpp"

#include <algorithm>

namespace tilescope {
namespace {

bool overlaps(const BufferBlock& a, const BufferBlock& b) {
  return a.heads.overlaps(b.heads) && a.rows.overlaps(b.rows);
}
bool covers(const BufferBlock& a, const BufferBlock& b) {
  return a.heads.contains(b.heads) && a.rows.contains(b.rows);
}

}  // namespace

bool attend_writes(Direction direction, TensorName tensor) {
  return is_sum(tensor) || (tensor == TensorName::lse && direction == Direction::forward);
}

ProgramBuilder::ProgramBuilder(const AttentionProblem& problem, Direction direction,
                               const DistributedOptions& options, const RankGrid& grid) {
  program_.problem = problem;
  program_.direction = direction;
  program_.schedule = options.schedule;
  program_.ranks = options.ranks;
  program_.ulysses = grid.ulysses;
}

int ProgramBuilder::add_buffer(int rank, TensorName tensor, BufferRole role, std::int64_t heads,
                               std::int64_t rows) {
  const TensorExtent extent = tensor_extent(problem(), tensor);
  program_.buffers.push_back({.rank = rank,
                              .tensor = tensor,
                              .role = role,
                              .heads = heads,
                              .rows = rows,
                              .cols = extent.cols,
                              .dtype = extent.dtype});
  history_.emplace_back();
  return static_cast<int>(program_.buffers.size()) - 1;
}

BufferBlock ProgramBuilder::whole(int buffer) const {
  const Buffer& whole = program_.buffers[static_cast<std::size_t>(buffer)];
  return {buffer, {0, whole.heads}, {0, whole.rows}};
}

BufferBlock ProgramBuilder::rows(int buffer, std::int64_t rows) const {
  BufferBlock block = whole(buffer);
  block.rows.end = rows;
  return block;
}

std::vector<ProgramBuilder::Access> ProgramBuilder::accesses(int operation, const Move& move) const {
  return {{operation, move.from, move.kind == MoveKind::add}, {operation, move.to, true}};
}

std::vector<ProgramBuilder::Access> ProgramBuilder::accesses(int operation, const Attend& attend) const {
  std::vector<Access> all;
  for (int i = 0; i < kNumTensors; ++i) {
    const auto tensor = static_cast<TensorName>(i);
    if (attend.buffer(tensor) < 0) continue;
    BufferBlock block = whole(attend.buffer(tensor));
    block.rows = has_query_rows(tensor) ? attend.slice.q_rows : attend.slice.kv_rows;
    all.push_back({operation, block, attend_writes(program_.direction, tensor)});
  }
  return all;
}

void ProgramBuilder::wait_for(Operation& operation, const Access& access) {
  const History& history = history_[at(access.block.buffer)];
  const auto wait = [&](const std::vector<Access>& earlier_ones) {
    for (const Access& earlier : earlier_ones) {
      if (earlier.operation != access.operation && overlaps(earlier.block, access.block))
        operation.waits.push_back(earlier.operation);
    }
  };
  wait(history.writes);
  if (access.writes) wait(history.reads);
}

void ProgramBuilder::note(const Access& access) {
  History& history = history_[at(access.block.buffer)];
  if (access.writes) {
    for (std::vector<Access>* const earlier_ones : {&history.reads, &history.writes})
      std::erase_if(*earlier_ones,
                    [&](const Access& earlier) { return covers(access.block, earlier.block); });
  }
  (access.writes ? history.writes : history.reads).push_back(access);
}

void ProgramBuilder::add(int step, std::variant<Move, Attend> what) {
  const int index = static_cast<int>(program_.operations.size());
  const std::vector<Access> all =
      std::visit([&](const auto& operation) { return accesses(index, operation); }, what);
  Operation operation{step, {}, std::move(what), compute_stream_};
  for (const Access& access : all) wait_for(operation, access);
  for (const Access& access : all) note(access);
  std::ranges::sort(operation.waits);
  operation.waits.erase(std::unique(operation.waits.begin(), operation.waits.end()), operation.waits.end());
  program_.operations.push_back(std::move(operation));
}

void ProgramBuilder::move(int step, MoveKind kind, const BufferBlock& from, const BufferBlock& to) {
  add(step, Move{kind, from, to});
}

void ProgramBuilder::attend(int step, Attend base, const Shard& q, const IndexRange& queries,
                            const Shard& kv) {
  std::optional<std::int64_t> offset;
  if (problem().causal) offset = problem().seqlen_k - problem().seqlen_q;
  for (const Slice& slice : visible_slices(q.part(queries), kv, offset)) {
    base.slice = slice;
    base.slice.q_rows.begin += queries.begin;
    base.slice.q_rows.end += queries.begin;
    add(step, base);
  }
}

void ProgramBuilder::on_compute_stream(int compute_stream) {
  compute_stream_ = compute_stream;
  program_.compute_streams = std::max(program_.compute_streams, compute_stream + 1);
}

void ProgramBuilder::place_input(const BufferBlock& block, std::int64_t first_head, const Shard& shard) {
  program_.inputs.push_back({block, first_head, shard});
}

void ProgramBuilder::place_input(int buffer, std::int64_t first_head, const Shard& shard) {
  place_input(rows(buffer, shard.rows()), first_head, shard);
}

void ProgramBuilder::place_output(const BufferBlock& block, std::int64_t first_head, const Shard& shard) {
  program_.outputs.push_back({block, first_head, shard});
}

void ProgramBuilder::place_output(int buffer, std::int64_t first_head, const Shard& shard) {
  place_output(rows(buffer, shard.rows()), first_head, shard);
}

std::vector<IndexRange> head_groups(std::int64_t heads, std::int64_t growth, bool sends_results) {
  const std::int64_t last = sends_results && heads > 1 ? 1 : 0, others = heads - last;
  std::vector<IndexRange> groups;
  for (std::int64_t begin = 0, size = 1; begin < others; size *= growth) {
    const bool ends = begin + 2 * size > others;  // what is left would be smaller than this one
    groups.push_back({begin, ends ? others : begin + size});
    begin = groups.back().end;
  }
  if (last > 0) groups.push_back({others, heads});
  return groups;
}

}  // namespace tilescope
