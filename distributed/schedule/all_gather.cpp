// SPDX-License-Identifier: Apache-2.0
// All K and V to every rank, in the order of their tokens; then each rank's queries in one launch a segment.
// Backward the same, and the partial dK and dV of all ranks go to the owners, who add them in rank order. All
// heads at once, or group by group: copies of a group then hide behind the launches of those before it.
#include <map>
#include <tuple>

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
        groups_(options.schedule == LinkSchedule::all_gather
                    ? std::vector<IndexRange>{{0, problem.heads_kv}}
                    : head_groups(problem.heads_kv, 2, !build_.forward())),
        attends_(groups_.size()) {
    for (auto& of_ranks : attends_) {
      of_ranks.resize(at(ranks_));
      for (int r = 0; r < ranks_; ++r) {
        of_ranks[at(r)].rank = r;
        of_ranks[at(r)].buffers.fill(-1);
      }
    }
  }

  /// Each group has a compute stream of its own, so that its launches begin when its heads have come and
  /// those before leave room. A compute stream in turn would wait for the longest tile of each launch.
  DistributedProgram build() {
    const int groups = static_cast<int>(groups_.size());
    for (int g = 0; g < groups; ++g) {
      for (int r = 0; r < ranks_; ++r) add_operands(g, r);
      gather(g, k);
      gather(g, v);
    }
    for (int g = 0; g < groups; ++g) {
      build_.on_compute_stream(g);
      launch(g);
      if (!build_.forward()) {
        for (const TensorName sums : {dk_accum, dv_accum}) send_sums(g, sums);
      }
      if (g > 0) finish(g - 1);
    }
    finish(groups - 1);
    return build_.take();
  }

 private:
  int& buffer(int group, int rank, TensorName tensor) {
    return attends_[at(group)][at(rank)].buffers[static_cast<std::size_t>(tensor)];
  }
  std::int64_t heads_kv(int group) const { return groups_[at(group)].count(); }
  /// Where the heads of a group begin in the whole tensor.
  std::int64_t first_head(int group, TensorName tensor) const {
    return groups_[at(group)].begin * (has_query_rows(tensor) ? build_.problem().group_size() : 1);
  }
  /// Calls visit(rows of the shard, the segment) for each segment.
  template <typename Visitor>
  void for_each_segment(int rank, Visitor&& visit) const {
    std::int64_t begin = 0;
    for (const Segment& segment : kv_shards_[at(rank)].segments) {
      visit(IndexRange{begin, begin + segment.count}, segment);
      begin += segment.count;
    }
  }
  static IndexRange of_sequence(const Segment& segment) {
    return {segment.first, segment.first + segment.count};
  }

  void add_operands(int g, int r) {
    const Shard& shard = q_shards_[at(r)];
    const auto add = [&](TensorName tensor, BufferRole role) {
      return buffer(g, r, tensor) = build_.add_buffer(
                 r, tensor, role, heads_kv(g) * build_.problem().group_size(), shard.rows());
    };
    const std::int64_t head = first_head(g, q);
    build_.place_input(add(q, BufferRole::operand), head, shard);
    if (build_.forward()) {
      build_.place_output(add(lse, BufferRole::operand), head, shard);
      add(out_accum, BufferRole::state);
      return;
    }
    for (const TensorName tensor : {out, lse, dout}) {
      build_.place_input(add(tensor, BufferRole::operand), head, shard);
    }
    add(dq_accum, BufferRole::state);
    for (const TensorName tensor : {dk_accum, dv_accum}) {
      buffer(g, r, tensor) =
          build_.add_buffer(r, tensor, BufferRole::state, heads_kv(g), build_.problem().seqlen_k);
    }
  }

  /// Each rank's own rows stand where the gathered ones come to stand. Rank r sends to r + 1, r + 2, ... so
  /// that no two send to the same one at a time.
  void gather(int g, TensorName tensor) {
    const IndexRange heads{0, heads_kv(g)};
    for (int r = 0; r < ranks_; ++r) {
      const int own = buffer(g, r, tensor) =
          build_.add_buffer(r, tensor, BufferRole::received, heads.end, build_.problem().seqlen_k);
      for_each_segment(r, [&](IndexRange, const Segment& segment) {
        build_.place_input({own, heads, of_sequence(segment)}, first_head(g, tensor), {{segment}});
      });
    }
    for (int distance = 1; distance < ranks_; ++distance) {
      for (int r = 0; r < ranks_; ++r) {
        const int to = buffer(g, (r + distance) % ranks_, tensor);
        for_each_segment(r, [&](IndexRange, const Segment& segment) {
          build_.move(g, MoveKind::copy, {buffer(g, r, tensor), heads, of_sequence(segment)},
                      {to, heads, of_sequence(segment)});
        });
      }
    }
  }

  void launch(int g) {
    const Shard all_keys{{{0, build_.problem().seqlen_k, 1}}};
    for (int r = 0; r < ranks_; ++r)
      build_.attend(g, attends_[at(g)][at(r)], q_shards_[at(r)], {0, q_shards_[at(r)].rows()}, all_keys);
  }

  /// Where the sums of another rank arrive, or its own.
  BufferBlock& part(int g, TensorName sums, int owner, int sender, std::size_t segment) {
    return parts_[{g, sums, owner, sender, segment}];
  }
  int arrival(int g, TensorName sums, int owner, BufferRole role) {
    return build_.add_buffer(owner, sums, role, heads_kv(g), kv_shards_[at(owner)].rows());
  }
  void send_sums(int g, TensorName sums) {
    const IndexRange heads{0, heads_kv(g)};
    for (int distance = 0; distance < ranks_; ++distance) {
      for (int r = 0; r < ranks_; ++r) {
        const int owner = (r + distance) % ranks_;
        const int to = distance == 0 ? -1 : arrival(g, sums, owner, BufferRole::received);
        std::size_t number = 0;
        for_each_segment(owner, [&](IndexRange of_shard, const Segment& segment) {
          BufferBlock& arrived = part(g, sums, owner, r, number++);
          arrived = {buffer(g, r, sums), heads, of_sequence(segment)};
          if (distance == 0) return;
          const BufferBlock target{to, heads, of_shard};
          build_.move(static_cast<int>(groups_.size()) + g, MoveKind::copy, arrived, target);
          arrived = target;
        });
      }
    }
  }
  void finish(int g) {
    build_.on_compute_stream(g);
    const int step = static_cast<int>(groups_.size()) + g + 1;
    const TensorName sums = build_.forward() ? out_accum : dq_accum;
    for (int r = 0; r < ranks_; ++r)
      round(step, r, g, buffer(g, r, sums), build_.forward() ? out : dq, q_shards_[at(r)]);
    if (build_.forward()) return;
    add_sums(step, g, dk_accum, dk);
    add_sums(step, g, dv_accum, dv);
  }
  void add_sums(int step, int g, TensorName sums, TensorName result) {
    for (int owner = 0; owner < ranks_; ++owner) {
      const int total = arrival(g, sums, owner, BufferRole::state);
      for (int r = 0; r < ranks_; ++r) {
        std::size_t number = 0;
        for_each_segment(owner, [&](IndexRange of_shard, const Segment&) {
          build_.move(step, MoveKind::add, part(g, sums, owner, r, number++),
                      {total, {0, heads_kv(g)}, of_shard});
        });
      }
      round(step, owner, g, total, result, kv_shards_[at(owner)]);
    }
  }

  void round(int step, int r, int g, int sums, TensorName result, const Shard& shard) {
    const BufferBlock from = build_.whole(sums);
    const int to = build_.add_buffer(r, result, BufferRole::operand, from.heads.end, shard.rows());
    build_.move(step, MoveKind::round, from, build_.whole(to));
    build_.place_output(to, first_head(g, result), shard);
  }

  ProgramBuilder build_;
  int ranks_;
  std::vector<Shard> q_shards_, kv_shards_;
  std::vector<IndexRange> groups_;            // of heads of K and V
  std::vector<std::vector<Attend>> attends_;  // by group and rank, with the buffers of its launches
  std::map<std::tuple<int, TensorName, int, int, std::size_t>, BufferBlock>
      parts_;  // of sums, by group, tensor, owner, sender and segment
};

}  // namespace

DistributedProgram build_all_gather(const AttentionProblem& problem, Direction direction,
                                    const DistributedOptions& options, const RankGrid& grid) {
  return AllGatherBuilder(problem, direction, options, grid).build();
}

}  // namespace tilescope
