// SPDX-License-Identifier: Apache-2.0
// All K and V to every rank, in the order of their tokens; then each rank's queries in one launch a segment.
// Backward the same, and the partial dK and dV of all ranks go to the owners, who add them in rank order.
#include "distributed/schedule/program_builder.hpp"

namespace tilescope {
namespace {

using enum TensorName;

class AllGatherBuilder {
 public:
  AllGatherBuilder(const AttentionProblem& problem, Direction direction, const DistributedOptions& options,
                   const RankGrid& grid)
      : build_(problem, direction, options, grid),
        ranks_(options.ranks),
        q_shards_(shard_tokens(grid.sharding, problem.seqlen_q, ranks_)),
        kv_shards_(shard_tokens(grid.sharding, problem.seqlen_k, ranks_)),
        attends_(at(ranks_)) {
    for (int r = 0; r < ranks_; ++r) {
      attends_[at(r)].rank = r;
      attends_[at(r)].buffers.fill(-1);
    }
  }

  DistributedProgram build() {
    for (int r = 0; r < ranks_; ++r) add_operands(r);
    gather(k);
    gather(v);
    const Shard all_keys{{{0, build_.problem().seqlen_k, 1}}};
    for (int r = 0; r < ranks_; ++r)
      build_.attend(0, attends_[at(r)], q_shards_[at(r)], {0, q_shards_[at(r)].rows()}, all_keys);
    const TensorName sums = build_.forward() ? out_accum : dq_accum;
    for (int r = 0; r < ranks_; ++r)
      round(2, r, buffer(r, sums), build_.forward() ? out : dq, q_shards_[at(r)]);
    if (!build_.forward()) {
      scatter(dk_accum, dk);
      scatter(dv_accum, dv);
    }
    return build_.take();
  }

 private:
  int& buffer(int rank, TensorName tensor) {
    return attends_[at(rank)].buffers[static_cast<std::size_t>(tensor)];
  }
  /// Calls visit(rows of the shard, rows of the whole sequence) for each segment.
  template <typename Visitor>
  void for_each_segment(int rank, Visitor&& visit) const {
    std::int64_t begin = 0;
    for (const Segment& segment : kv_shards_[at(rank)].segments) {
      visit(IndexRange{begin, begin + segment.count},
            IndexRange{segment.first, segment.first + segment.count});
      begin += segment.count;
    }
  }

  void add_operands(int r) {
    const AttentionProblem& problem = build_.problem();
    const Shard& shard = q_shards_[at(r)];
    const auto add = [&](TensorName tensor, BufferRole role) {
      return buffer(r, tensor) = build_.add_buffer(r, tensor, role, problem.heads, shard.rows());
    };
    build_.place_input(add(q, BufferRole::operand), 0, shard);
    if (build_.forward()) {
      build_.place_output(add(lse, BufferRole::operand), 0, shard);
      add(out_accum, BufferRole::state);
      return;
    }
    for (const TensorName tensor : {out, lse, dout}) {
      build_.place_input(add(tensor, BufferRole::operand), 0, shard);
    }
    add(dq_accum, BufferRole::state);
    for (const TensorName tensor : {dk_accum, dv_accum}) {
      buffer(r, tensor) = build_.add_buffer(r, tensor, BufferRole::state, problem.heads_kv, problem.seqlen_k);
    }
  }

  /// Copies between owners: rank r sends to r + 1, r + 2, ... so that no two send to the same one at a time.
  void gather(TensorName tensor) {
    const AttentionProblem& problem = build_.problem();
    std::vector<int> own;
    for (int r = 0; r < ranks_; ++r) {
      own.push_back(
          build_.add_buffer(r, tensor, BufferRole::operand, problem.heads_kv, kv_shards_[at(r)].rows()));
      build_.place_input(own.back(), 0, kv_shards_[at(r)]);
      buffer(r, tensor) =
          build_.add_buffer(r, tensor, BufferRole::received, problem.heads_kv, problem.seqlen_k);
    }
    for (int distance = 0; distance < ranks_; ++distance) {
      for (int r = 0; r < ranks_; ++r) {
        for_each_segment(r, [&](IndexRange of_shard, IndexRange of_sequence) {
          const IndexRange heads{0, problem.heads_kv};
          build_.move(0, MoveKind::copy, {own[at(r)], heads, of_shard},
                      {buffer((r + distance) % ranks_, tensor), heads, of_sequence});
        });
      }
    }
  }

  void scatter(TensorName sums, TensorName result) {
    const IndexRange heads{0, build_.problem().heads_kv};
    const auto arrival = [&](int owner, BufferRole role) {
      return build_.add_buffer(owner, sums, role, heads.end, kv_shards_[at(owner)].rows());
    };
    std::vector<std::vector<int>> parts(at(ranks_), std::vector<int>(at(ranks_), -1));  // by owner, sender
    for (int distance = 1; distance < ranks_; ++distance) {
      for (int r = 0; r < ranks_; ++r) {
        const int owner = (r + distance) % ranks_;
        const int part = parts[at(owner)][at(r)] = arrival(owner, BufferRole::received);
        for_each_segment(owner, [&](IndexRange of_shard, IndexRange of_sequence) {
          build_.move(1, MoveKind::copy, {buffer(r, sums), heads, of_sequence}, {part, heads, of_shard});
        });
      }
    }
    for (int owner = 0; owner < ranks_; ++owner) {
      const int total = arrival(owner, BufferRole::state);
      for (int r = 0; r < ranks_; ++r) {
        for_each_segment(owner, [&](IndexRange of_shard, IndexRange of_sequence) {
          const int part = parts[at(owner)][at(r)];
          const BufferBlock own{buffer(owner, sums), heads, of_sequence}, received{part, heads, of_shard};
          build_.move(2, MoveKind::add, part < 0 ? own : received, {total, heads, of_shard});
        });
      }
      round(2, owner, total, result, kv_shards_[at(owner)]);
    }
  }

  void round(int step, int r, int sums, TensorName result, const Shard& shard) {
    const BufferBlock from = build_.whole(sums);
    const int to = build_.add_buffer(r, result, BufferRole::operand, from.heads.end, shard.rows());
    build_.move(step, MoveKind::round, from, build_.whole(to));
    build_.place_output(to, 0, shard);
  }

  ProgramBuilder build_;
  int ranks_;
  std::vector<Shard> q_shards_, kv_shards_;
  std::vector<Attend> attends_;  // by rank, with the buffers of its launches
};

}  // namespace

DistributedProgram build_all_gather(const AttentionProblem& problem, Direction direction,
                                    const DistributedOptions& options, const RankGrid& grid) {
  return AllGatherBuilder(problem, direction, options, grid).build();
}

}  // namespace tilescope
