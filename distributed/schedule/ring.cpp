// SPDX-License-Identifier: Apache-2.0
// Rings, Ulysses and both together. Ranks stand in groups: the ranks of a group exchange tokens for heads by
// all-to-all, so that each has all tokens of the group and its share of the heads; K and V of a group's share
// then rotate from group to group. One group: Ulysses. Groups of one rank: a ring. Ulysses at once or some
// heads after the other: copies of some then hide behind the launches of others.
#include <algorithm>
#include <span>

#include "distributed/schedule/program_builder.hpp"

namespace tilescope {
namespace {

using enum TensorName;

/// Heads [begin, end) of each rank's share of K and V, and the query heads that go with them.
class RingOfHeads {
 public:
  /// @param turn  of `turns` such rings
  RingOfHeads(ProgramBuilder& build, const RankGrid& grid, const IndexRange& heads_kv, int turn, int turns)
      : build_(build),
        ulysses_(grid.ulysses),
        groups_(grid.ring),
        heads_kv_(heads_kv),
        compute_stream_(turn),
        first_step_(turn),
        last_step_(groups_ + turns + turn),
        q_shards_(shard_tokens(grid.sharding, build.problem().seqlen_q, grid.ring)),
        kv_shards_(shard_tokens(grid.sharding, build.problem().seqlen_k, grid.ring)) {
    for (const Shard& shard : kv_shards_) most_keys_ = std::max(most_keys_, shard.rows());
    for (auto* slot : {&k_slot_, &v_slot_, &dk_slot_, &dv_slot_}) {
      for (auto& buffers : *slot) buffers.assign(static_cast<std::size_t>(ulysses_ * groups_), -1);
    }
  }

  void add_operands() {
    const bool forward = build_.forward();
    for (const TensorName tensor : {q, k, v}) {
      operand(tensor) = forward ? input_by_tokens(tensor) : input_by_heads(tensor);
    }
    if (forward) {
      operand(out_accum) = add_all(out_accum, BufferRole::state);
      operand(lse) = add_all(lse, BufferRole::operand);
      place(operand(lse), lse, false);
    } else {
      operand(out) = input_by_heads(out);
      operand(lse) = input_by_heads(lse);
      operand(dout) = input_by_tokens(dout);
      operand(dq_accum) = add_all(dq_accum, BufferRole::state);
      operand(dk_accum) = add_all(dk_accum, BufferRole::state);
      operand(dv_accum) = add_all(dv_accum, BufferRole::state);
    }
    if (groups_ == 1) return;
    for (int slot = 0; slot < std::min(2, groups_ - 1); ++slot) {
      k_slot_[at(slot)] = add_all(k, BufferRole::received, most_keys_);
      v_slot_[at(slot)] = add_all(v, BufferRole::received, most_keys_);
    }
    if (forward) return;
    for (int slot = 0; slot < 2; ++slot) {
      dk_slot_[at(slot)] = add_all(dk_accum, BufferRole::received, most_keys_);
      dv_slot_[at(slot)] = add_all(dv_accum, BufferRole::received, most_keys_);
    }
    dk_part_ = add_all(dk_accum, BufferRole::state, most_keys_);
    dv_part_ = add_all(dv_accum, BufferRole::state, most_keys_);
  }

  void compute() {
    build_.on_compute_stream(compute_stream_);
    for (int step = 0; step < groups_; ++step) {
      if (step + 1 < groups_) rotate_keys(step);
      if (!build_.forward() && step > 0) rotate_gradients(step);
      // Forward a step's launch fills what the longest tiles of the one before leave of the GPU.
      if (build_.forward()) build_.on_compute_stream(compute_stream_ + step % 2);
      launch(step);
    }
    build_.on_compute_stream(compute_stream_);
    if (!build_.forward() && groups_ > 1) {
      rotate_gradients(groups_);
      launch_rest();
    }
    finish();
  }

 private:
  using Buffers = std::vector<int>;  // by rank
  int rank(int group, int member) const { return group * ulysses_ + member; }
  /// The group whose K and V group `group` holds in a step, and the next one of the ring.
  int visiting(int group, int step) const { return (group - step + groups_) % groups_; }
  int next(int group) const { return (group + 1) % groups_; }
  const Shard& shard_of(TensorName tensor, int group) const {
    return (has_query_rows(tensor) ? q_shards_ : kv_shards_)[at(group)];
  }
  /// Heads of that tensor for one head of K and V.
  std::int64_t heads_of_one(TensorName tensor) const {
    return has_query_rows(tensor) ? build_.problem().group_size() : 1;
  }
  std::int64_t heads_of(TensorName tensor) const { return heads_kv_.count() * heads_of_one(tensor); }
  /// Where the heads of a member begin in the whole tensor.
  std::int64_t first_head(TensorName tensor, int member) const {
    return (member * (build_.problem().heads_kv / ulysses_) + heads_kv_.begin) * heads_of_one(tensor);
  }

  /// Buffers of all ranks, for the rows of their groups and their share of the heads.
  Buffers add_all(TensorName tensor, BufferRole role, std::optional<std::int64_t> rows = std::nullopt) {
    Buffers buffers;
    for (int r = 0; r < groups_ * ulysses_; ++r) {
      buffers.push_back(build_.add_buffer(r, tensor, role, heads_of(tensor),
                                          rows.value_or(shard_of(tensor, r / ulysses_).rows())));
    }
    return buffers;
  }
  void place(const Buffers& buffers, TensorName tensor, bool input) {
    for (int r = 0; r < groups_ * ulysses_; ++r) {
      const Shard& shard = shard_of(tensor, r / ulysses_);
      place(build_.rows(buffers[at(r)], shard.rows()), first_head(tensor, r % ulysses_), shard, input);
    }
  }
  void place(const BufferBlock& block, std::int64_t head, const Shard& shard, bool input) {
    input ? build_.place_input(block, head, shard) : build_.place_output(block, head, shard);
  }

  /// The all-to-all of each group between a rank's rows of others' heads and the buffers with all rows of its
  /// own heads. Its own rows of these stand there, as owned.
  /// @param input  from rows to heads, or back
  void all_to_all(int step, TensorName tensor, const Buffers& by_heads, bool input) {
    const std::int64_t heads = heads_of(tensor);
    for (int distance = 0; distance < ulysses_; ++distance) {
      for (int r = 0; r < groups_ * ulysses_; ++r) {
        const int group = r / ulysses_, owner = r % ulysses_, other = (owner + distance) % ulysses_;
        const Shard& shard = shard_of(tensor, group);
        const IndexRange rows = near_equal_part(shard.rows(), ulysses_, owner);
        const BufferBlock full{by_heads[at(rank(group, other))], {0, heads}, rows};
        BufferBlock owned = full;
        if (distance > 0)
          owned = build_.whole(build_.add_buffer(r, tensor, BufferRole::operand, heads, rows.count()));
        place(owned, first_head(tensor, other), shard.part(rows), input);
        if (distance > 0) build_.move(step, MoveKind::copy, input ? owned : full, input ? full : owned);
      }
    }
  }
  /// An input that the ranks own by tokens, by heads in the end.
  Buffers input_by_tokens(TensorName tensor) {
    if (ulysses_ == 1) return input_by_heads(tensor);
    const Buffers by_heads = add_all(tensor, BufferRole::received);
    all_to_all(first_step_, tensor, by_heads, true);
    return by_heads;
  }
  /// An input that the forward pass has left by heads.
  Buffers input_by_heads(TensorName tensor) {
    const Buffers buffers = add_all(tensor, BufferRole::operand);
    place(buffers, tensor, true);
    return buffers;
  }

  /// Where rank r finds the keys of a step: its own, then two buffers in turn.
  const Buffers& keys(TensorName tensor, int step) {
    if (step == 0) return operand(tensor);
    return (tensor == k ? k_slot_ : v_slot_)[at((step - 1) % 2)];
  }
  /// While a step computes, its keys move on to the next group.
  void rotate_keys(int step) {
    for (const TensorName tensor : {k, v}) {
      for (int r = 0; r < groups_ * ulysses_; ++r) {
        const int group = r / ulysses_;
        const std::int64_t rows = kv_shards_[at(visiting(group, step))].rows();
        build_.move(step, MoveKind::copy, build_.rows(keys(tensor, step)[at(r)], rows),
                    build_.rows(keys(tensor, step + 1)[at(rank(next(group), r % ulysses_))], rows));
      }
    }
  }
  /// The sums of dK and dV follow the keys that they are of, one step behind; the last hop is home.
  void rotate_gradients(int step) {
    for (const TensorName tensor : {dk_accum, dv_accum}) {
      auto& slots = tensor == dk_accum ? dk_slot_ : dv_slot_;
      const Buffers& to = step == groups_ ? operand(tensor) : slots[at(step % 2)];
      for (int r = 0; r < groups_ * ulysses_; ++r) {
        const int group = r / ulysses_;
        const std::int64_t rows = kv_shards_[at(visiting(group, step - 1))].rows();
        build_.move(step, MoveKind::copy, build_.rows(slots[at((step - 1) % 2)][at(r)], rows),
                    build_.rows(to[at(rank(next(group), r % ulysses_))], rows));
      }
    }
  }

  /// What each rank's queries do with the keys of a step. Backward, of its own keys' launch the first half of
  /// the queries waits until the sums are on their last hop, which they hide.
  void launch(int step) {
    for (int r = 0; r < groups_ * ulysses_; ++r) {
      const int group = r / ulysses_;
      const Shard& q = q_shards_[at(group)];
      const bool halved = !build_.forward() && step == 0 && groups_ > 1;
      launch(step, r, visiting(group, step), {halved ? q.rows() / 2 : 0, q.rows()});
      if (build_.forward() || step == 0) continue;
      const std::int64_t rows = kv_shards_[at(visiting(group, step))].rows();
      add_part(step, r, dk_part_, dk_slot_[at(step % 2)], rows);
      add_part(step, r, dv_part_, dv_slot_[at(step % 2)], rows);
    }
  }
  void launch_rest() {
    for (int r = 0; r < groups_ * ulysses_; ++r) {
      const int group = r / ulysses_;
      launch(groups_, r, group, {0, q_shards_[at(group)].rows() / 2});
      const std::int64_t rows = kv_shards_[at(group)].rows();
      add_part(groups_, r, dk_part_, operand(dk_accum), rows);
      add_part(groups_, r, dv_part_, operand(dv_accum), rows);
    }
  }
  /// Query rows of rank r against the keys of a group's shard.
  void launch(int step, int r, int keys_of, const IndexRange& queries) {
    Attend attend;
    attend.rank = r;
    attend.buffers.fill(-1);
    const auto use = [&](TensorName tensor, const Buffers& buffers) {
      attend.buffers[static_cast<std::size_t>(tensor)] = buffers[at(r)];
    };
    for (const TensorName tensor : {q, out, lse, dout, out_accum, dq_accum}) {
      if (!operand(tensor).empty()) use(tensor, operand(tensor));
    }
    use(k, keys(k, step % groups_));
    use(v, keys(v, step % groups_));
    if (!build_.forward()) {
      const bool alone = groups_ == 1;
      use(dk_accum, alone ? operand(dk_accum) : step == 0 ? dk_slot_[0] : dk_part_);
      use(dv_accum, alone ? operand(dv_accum) : step == 0 ? dv_slot_[0] : dv_part_);
    }
    build_.attend(step, attend, q_shards_[at(r / ulysses_)], queries, kv_shards_[at(keys_of)]);
  }
  /// The sums of a step wait for those of the ranks before; the launch does not.
  void add_part(int step, int r, const Buffers& part, const Buffers& sums, std::int64_t rows) {
    build_.move(step, MoveKind::add, build_.rows(part[at(r)], rows), build_.rows(sums[at(r)], rows));
  }

  /// Rounds sums to the element type and gives the rows back to their owners; dQ last, as its sums are
  /// rounded by a pass, and those of the others by the launch.
  void finish() {
    struct Result {
      TensorName sums, tensor;
    };
    constexpr Result kForward[] = {{out_accum, out}},
                     kBackward[] = {{dk_accum, dk}, {dv_accum, dv}, {dq_accum, dq}};
    const std::span<const Result> results =
        build_.forward() ? std::span<const Result>(kForward) : std::span<const Result>(kBackward);
    std::vector<Buffers> by_heads;
    for (const Result& result : results) by_heads.push_back(round(result.sums, result.tensor));
    for (std::size_t i = 0; i < results.size(); ++i) {
      ulysses_ == 1 ? place(by_heads[i], results[i].tensor, false)
                    : all_to_all(last_step_, results[i].tensor, by_heads[i], false);
    }
  }
  Buffers round(TensorName sums, TensorName result) {
    const Buffers by_heads = add_all(result, ulysses_ == 1 ? BufferRole::operand : BufferRole::state);
    for (int r = 0; r < groups_ * ulysses_; ++r) {
      build_.move(last_step_, MoveKind::round, build_.whole(operand(sums)[at(r)]),
                  build_.whole(by_heads[at(r)]));
    }
    return by_heads;
  }

  Buffers& operand(TensorName tensor) { return operands_[static_cast<std::size_t>(tensor)]; }

  ProgramBuilder& build_;
  int ulysses_, groups_;
  IndexRange heads_kv_;
  int compute_stream_, first_step_, last_step_;
  std::vector<Shard> q_shards_, kv_shards_;  // by group
  std::int64_t most_keys_ = 0;
  std::array<Buffers, kNumTensors> operands_;
  std::array<Buffers, 2> k_slot_, v_slot_, dk_slot_, dv_slot_;
  Buffers dk_part_, dv_part_;
};

}  // namespace

DistributedProgram build_ring(const AttentionProblem& problem, Direction direction,
                              const DistributedOptions& options, const RankGrid& grid) {
  ProgramBuilder build(problem, direction, options, grid);
  const std::int64_t heads_kv = problem.heads_kv / grid.ulysses;
  std::vector<IndexRange> turns = {{0, heads_kv}};
  // Backward little is sent before a launch, dO alone: large groups hide it, too.
  if (options.schedule == LinkSchedule::ulysses_heads)
    turns = head_groups(heads_kv, build.forward() ? 2 : 8, true);
  std::vector<RingOfHeads> rings;
  for (const IndexRange& heads : turns) {
    const int turn = static_cast<int>(rings.size());
    rings.emplace_back(build, grid, heads, turn, static_cast<int>(turns.size())).add_operands();
  }
  for (RingOfHeads& ring : rings) ring.compute();
  return build.take();
}

}  // namespace tilescope
