// SPDX-License-Identifier: Apache-2.0
#include "distributed/counts/link_traffic.hpp"

#include <algorithm>

namespace tilescope {
namespace {

/// What the formulas are made of.
class LinkFormula {
 public:
  LinkFormula(const AttentionProblem& problem, Direction direction, const DistributedOptions& options)
      : problem_(problem),
        backward_(direction == Direction::backward),
        all_gather_(gathers_keys(options.schedule)),
        grid_(rank_grid(problem, options)) {
    for (const Shard& shard : shard_tokens(grid_.sharding, problem.seqlen_q, grid_.ring))
      q_rows_.push_back(shard.rows());
    for (const Shard& shard : shard_tokens(grid_.sharding, problem.seqlen_k, grid_.ring))
      kv_rows_.push_back(shard.rows());
  }

  LinkBytes of_rank(int rank) const {
    const int group = rank / grid_.ulysses, member = rank % grid_.ulysses;
    LinkBytes bytes = all_gather_ ? gathered(group) : rotated(group);
    if (grid_.ulysses > 1) bytes += exchanged(group, member);
    return bytes;
  }

 private:
  /// Bytes of one token's row in a rank's share of the heads.
  std::int64_t row_bytes(std::int64_t heads, int element) const {
    return problem_.batch * (heads / grid_.ulysses) * problem_.head_dim * element;
  }
  std::int64_t kv_row() const { return 2 * row_bytes(problem_.heads_kv, element_bytes(problem_.dtype)); }
  std::int64_t kv_sums_row() const { return 2 * row_bytes(problem_.heads_kv, 4); }
  std::int64_t kv_rows(int group) const { return kv_rows_[static_cast<std::size_t>(group % grid_.ring)]; }

  LinkBytes rotated(int group) const {
    if (grid_.ring == 1) return {};
    const std::int64_t all = problem_.seqlen_k, sums = backward_ ? all * kv_sums_row() : 0;
    return {(all - kv_rows(group + 1)) * kv_row() + sums, (all - kv_rows(group)) * kv_row() + sums};
  }
  LinkBytes gathered(int rank) const {
    const std::int64_t own = kv_rows(rank) * (grid_.ring - 1), others = problem_.seqlen_k - kv_rows(rank);
    const std::int64_t sums = backward_ ? kv_sums_row() : 0;
    return {own * kv_row() + others * sums, others * kv_row() + own * sums};
  }
  /// Forward Q, K and V to heads and O back; backward dO, and dQ, dK and dV back.
  LinkBytes exchanged(int group, int member) const {
    const auto turned = [&](std::int64_t rows, std::int64_t heads) {
      const std::int64_t own = near_equal_part(rows, grid_.ulysses, member).count();
      const std::int64_t row = row_bytes(heads, element_bytes(problem_.dtype));
      return LinkBytes{own * (grid_.ulysses - 1) * row, (rows - own) * row};
    };
    const LinkBytes q = turned(q_rows_[static_cast<std::size_t>(group)], problem_.heads);
    const LinkBytes kv = turned(kv_rows(group), problem_.heads_kv);
    LinkBytes to_heads = q, back = q;
    (backward_ ? back : to_heads) += kv;
    (backward_ ? back : to_heads) += kv;
    return {to_heads.sent + back.received, to_heads.received + back.sent};
  }

  AttentionProblem problem_;
  bool backward_, all_gather_;
  RankGrid grid_;
  std::vector<std::int64_t> q_rows_, kv_rows_;  // by group
};

}  // namespace

LinkBytes& LinkBytes::operator+=(const LinkBytes& other) {
  sent += other.sent;
  received += other.received;
  return *this;
}

std::vector<LinkBytes> link_traffic(const DistributedProgram& program) {
  std::vector<LinkBytes> by_rank(static_cast<std::size_t>(program.ranks));
  for_each_transfer(program, [&](const Operation&, const Move& move) {
    by_rank[static_cast<std::size_t>(program.rank_of(move.from))].sent += program.bytes(move.from);
    by_rank[static_cast<std::size_t>(program.rank_of(move.to))].received += program.bytes(move.to);
  });
  return by_rank;
}

std::vector<LinkBytes> link_closed_form(const AttentionProblem& problem, Direction direction,
                                        const DistributedOptions& options) {
  const LinkFormula formula(problem, direction, options);
  std::vector<LinkBytes> by_rank;
  for (int rank = 0; rank < options.ranks; ++rank) by_rank.push_back(formula.of_rank(rank));
  return by_rank;
}

std::optional<double> least_link_bytes(const AttentionProblem& problem, Direction direction, int ranks) {
  if (direction != Direction::forward || problem.masked() || problem.seqlen_q != problem.seqlen_k ||
      problem.seqlen_k % ranks != 0) {
    return std::nullopt;
  }
  const double p = ranks, g = static_cast<double>(problem.group_size());
  const double s = static_cast<double>(problem.batch * problem.heads_kv * (problem.seqlen_k / ranks) * 2 *
                                       problem.head_dim * element_bytes(problem.dtype));
  return (p - 1) * s * std::min(1.0, (g + 1) / (p + 1));
}

}  // namespace tilescope
