// SPDX-License-Identifier: Apache-2.0
// A pass over several GPUs (ranks) as data, above the tile programs: who owns which rows and heads in which
// buffers, which blocks of them move over the link, which slices of the problem are launched where, and what
// waits for what. The closed forms must equal its sums, the executors run it, the timeline adds up its time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cpu_ref/schedule/problem.hpp"
#include "cpu_ref/schedule/tile_program.hpp"
#include "distributed/schedule/sharding.hpp"

namespace tilescope {

enum class LinkSchedule : std::uint8_t {
  ring,
  zigzag,
  striped,
  all_gather,
  all_gather_heads,
  ulysses,
  ulysses_heads,
  ulysses_ring
};
inline constexpr LinkSchedule kLinkSchedules[] = {
    LinkSchedule::ring,          LinkSchedule::zigzag,           LinkSchedule::striped,
    LinkSchedule::all_gather,    LinkSchedule::all_gather_heads, LinkSchedule::ulysses,
    LinkSchedule::ulysses_heads, LinkSchedule::ulysses_ring};
/// Whether every rank gets all K and V, rather than one shard after the other.
inline bool gathers_keys(LinkSchedule schedule) {
  return schedule == LinkSchedule::all_gather || schedule == LinkSchedule::all_gather_heads;
}
std::string_view to_string(LinkSchedule schedule);
/// One line: what moves, and where it is from.
std::string_view summary_of(LinkSchedule schedule);
/// @throws UnknownName naming the nearest
LinkSchedule parse_link_schedule(const std::string& name);

/// Whether the rows of a tensor are those of queries, or of keys.
bool has_query_rows(TensorName tensor);
/// Whether it is an fp32 sum that launches add to: out_accum, dq_accum, dk_accum, dv_accum.
bool is_sum(TensorName tensor);

/// Ranks, buffers and operations are numbers of type int; what is kept for each stands in vectors.
inline std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// What the buffers of a rank are there for.
enum class BufferRole : std::uint8_t {
  operand,   // the rank's share of an input or a result
  received,  // where blocks of other ranks arrive
  state      // sums and statistics in fp32
};

/// Memory of one rank: (batch, heads, rows, cols) in C order, as a tensor of the problem. Sums hold 0 and the
/// lse of state -inf before the first operation.
struct Buffer {
  int rank = 0;
  TensorName tensor = TensorName::q;
  BufferRole role = BufferRole::operand;
  std::int64_t heads = 0, rows = 0, cols = 0;
  ElementType dtype = ElementType::fp32;
};

/// Rows and heads of a buffer.
struct BufferBlock {
  int buffer = 0;
  IndexRange heads, rows;
};

enum class MoveKind : std::uint8_t {
  copy,   // over the link where the ranks differ
  add,    // on one rank: adds `from` to `to` in fp32 and leaves zeros
  round,  // on one rank: fp32 to the element type
};
struct Move {
  MoveKind kind = MoveKind::copy;
  BufferBlock from, to;  // of the same extent
};

/// A kernel on one slice. Forward: its out and lse are merged into the buffers out_accum and lse. Backward:
/// from the merged out and lse; its gradients are added to dq_accum, dk_accum and dv_accum.
struct Attend {
  int rank = 0;
  Slice slice;
  std::array<int, kNumTensors> buffers{};  // by TensorName; -1: not used
  int buffer(TensorName name) const { return buffers[static_cast<std::size_t>(name)]; }
};

struct Operation {
  int step = 0;            // operations of a step may overlap as far as they do not wait
  std::vector<int> waits;  // operations before it that have to have ended, on any rank
  std::variant<Move, Attend> what;
  int compute_stream =
      0;  // of one rank: work on one goes in order, work on several overlaps where nothing waits
};

/// Where a block lies in the tensor of the whole problem that its buffer is part of.
struct Placement {
  BufferBlock block;
  std::int64_t first_head = 0;
  Shard rows;
};

/// The operations stand in an order in which they could be done one after the other.
struct DistributedProgram {
  AttentionProblem problem;
  Direction direction = Direction::forward;
  LinkSchedule schedule = LinkSchedule::ring;
  int ranks = 1;
  int ulysses = 1;          // ranks that share heads; ranks / ulysses share tokens
  int compute_streams = 1;  // of each rank
  std::vector<Buffer> buffers;
  std::vector<Operation> operations;
  std::vector<Placement> inputs, outputs;

  const Buffer& buffer_of(const BufferBlock& block) const {
    return buffers[static_cast<std::size_t>(block.buffer)];
  }
  int rank_of(const BufferBlock& block) const { return buffer_of(block).rank; }
  /// The rank that does an operation; of a copy, the sender.
  int rank_of(const Operation& operation) const;
  std::int64_t bytes(const BufferBlock& block) const;
  std::int64_t bytes(const Buffer& buffer) const;
  /// The problem of one launch; its mask says what the slice hides.
  AttentionProblem slice_problem(const Attend& attend) const;
  int steps() const { return operations.empty() ? 0 : operations.back().step + 1; }
};

/// Calls visit(operation, move) for every copy between two ranks.
template <typename Visitor>
void for_each_transfer(const DistributedProgram& program, Visitor&& visit) {
  for (const Operation& operation : program.operations) {
    const Move* const move = std::get_if<Move>(&operation.what);
    if (move == nullptr || move->kind != MoveKind::copy) continue;
    if (program.rank_of(move->from) != program.rank_of(move->to)) visit(operation, *move);
  }
}

inline constexpr int kMostRanks = 1024;  // a ring has ranks^2 launches

struct DistributedOptions {
  LinkSchedule schedule = LinkSchedule::zigzag;
  int ranks = 2;
  int ulysses = 0;  // of ulysses_ring: ranks that share heads; 0: the most that divide ranks and heads
};

/// How many ranks share heads, and how the others share tokens.
struct RankGrid {
  int ulysses = 1, ring = 1;
  Sharding sharding = Sharding::contiguous;
};
/// @throws BadInput naming what the schedule cannot split
RankGrid rank_grid(const AttentionProblem& problem, const DistributedOptions& options);

/// @throws BadInput naming what the schedule cannot split
DistributedProgram build_distributed(const AttentionProblem& problem, Direction direction,
                                     const DistributedOptions& options);

}  // namespace tilescope
