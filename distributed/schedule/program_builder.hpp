// SPDX-License-Identifier: Apache-2.0
// Adds buffers and operations to a distributed program; what an operation waits for follows from the blocks
// that it and those before it read and write.
#pragma once

#include "distributed/schedule/distributed_program.hpp"

namespace tilescope {

class ProgramBuilder {
 public:
  ProgramBuilder(const AttentionProblem& problem, Direction direction, const DistributedOptions& options,
                 const RankGrid& grid);

  /// @param heads, rows  that the buffer has; columns and element type are those of the tensor
  int add_buffer(int rank, TensorName tensor, BufferRole role, std::int64_t heads, std::int64_t rows);
  /// All of a buffer, or rows [0, rows) of it.
  BufferBlock whole(int buffer) const;
  BufferBlock rows(int buffer, std::int64_t rows) const;

  void move(int step, MoveKind kind, const BufferBlock& from, const BufferBlock& to);
  /// One launch for each band of what the rows `queries` of `q` see of `kv`; the rows of `base.slice` are
  /// ignored.
  void attend(int step, Attend base, const Shard& q, const IndexRange& queries, const Shard& kv);
  /// What is added from now on is computed on this compute stream.
  void on_compute_stream(int compute_stream);
  void place_input(const BufferBlock& block, std::int64_t first_head, const Shard& shard);
  /// The rows of `shard`, which lie in the buffer from its first row on, are those of the whole tensor.
  void place_input(int buffer, std::int64_t first_head, const Shard& shard);
  void place_output(const BufferBlock& block, std::int64_t first_head, const Shard& shard);
  void place_output(int buffer, std::int64_t first_head, const Shard& shard);

  const AttentionProblem& problem() const { return program_.problem; }
  bool forward() const { return program_.direction == Direction::forward; }
  DistributedProgram take() { return std::move(program_); }

 private:
  struct Access {
    int operation;
    BufferBlock block;
    bool writes;
  };
  void add(int step, std::variant<Move, Attend> what);
  /// The earlier operations that an access has to wait for.
  void wait_for(Operation& operation, const Access& access);
  void note(const Access& access);
  std::vector<Access> accesses(int operation, const Move& move) const;
  std::vector<Access> accesses(int operation, const Attend& attend) const;

  DistributedProgram program_;
  int compute_stream_ = 0;
  /// None that a later write has covered.
  struct History {
    std::vector<Access> reads, writes;
  };
  std::vector<History> history_;  // by buffer
};

/// Whether a launch writes that tensor of its buffers, or only reads it.
bool attend_writes(Direction direction, TensorName tensor);

/// Heads by group, for copies of a group to hide behind the launches of those before it. Each is so many
/// times as large as the one before, as nothing hides the copies of the first; if results go back to other
/// ranks, the last is small, since nothing hides that either.
std::vector<IndexRange> head_groups(std::int64_t heads, std::int64_t growth, bool sends_results);

/// The schedules: from the grid that rank_grid() gave.
DistributedProgram build_ring(const AttentionProblem& problem, Direction direction,
                              const DistributedOptions& options, const RankGrid& grid);
DistributedProgram build_all_gather(const AttentionProblem& problem, Direction direction,
                                    const DistributedOptions& options, const RankGrid& grid);

}  // namespace tilescope
