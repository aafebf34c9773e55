// SPDX-License-Identifier: Apache-2.0
#include "distributed/counts/rank_load.hpp"

#include <algorithm>
#include <map>

namespace tilescope {
namespace {

std::int64_t pairs_of(const DistributedProgram& program, const Attend& attend) {
  const Buffer& q = program.buffers[static_cast<std::size_t>(attend.buffer(TensorName::q))];
  return program.problem.batch * q.heads * attend.slice.visible_pairs();
}

}  // namespace

std::vector<RankLoad> rank_loads(const DistributedProgram& program) {
  std::vector<RankLoad> loads(static_cast<std::size_t>(program.ranks));
  for (const Buffer& buffer : program.buffers) {
    RankLoad& load = loads[static_cast<std::size_t>(buffer.rank)];
    const std::int64_t bytes = program.bytes(buffer);
    (buffer.role == BufferRole::operand    ? load.operand_bytes
     : buffer.role == BufferRole::received ? load.received_bytes
                                           : load.state_bytes) += bytes;
  }
  for (const Operation& operation : program.operations) {
    const Attend* const attend = std::get_if<Attend>(&operation.what);
    if (attend == nullptr) continue;
    RankLoad& load = loads[static_cast<std::size_t>(attend->rank)];
    load.visible_pairs += pairs_of(program, *attend);
    ++load.launches;
  }
  return loads;
}

double useful_flops(Direction direction, std::int64_t visible_pairs, std::int64_t head_dim) {
  const double products = products_of(direction).count();
  return 2 * products * static_cast<double>(visible_pairs) * static_cast<double>(head_dim);
}

Balance balance(const DistributedProgram& program) {
  std::map<int, std::vector<std::int64_t>> by_step;
  std::vector<std::int64_t> by_rank(static_cast<std::size_t>(program.ranks));
  for (const Operation& operation : program.operations) {
    const Attend* const attend = std::get_if<Attend>(&operation.what);
    if (attend == nullptr) continue;
    std::vector<std::int64_t>& ranks = by_step[operation.step];
    ranks.resize(by_rank.size());
    const std::int64_t pairs = pairs_of(program, *attend);
    ranks[static_cast<std::size_t>(attend->rank)] += pairs;
    by_rank[static_cast<std::size_t>(attend->rank)] += pairs;
  }
  double all = 0, slowest_steps = 0;
  for (const std::int64_t pairs : by_rank) all += static_cast<double>(pairs);
  for (const auto& [step, ranks] : by_step)
    slowest_steps += static_cast<double>(*std::ranges::max_element(ranks));
  if (all == 0) return {};
  const double mean = all / program.ranks;
  return {mean / static_cast<double>(*std::ranges::max_element(by_rank)), mean / slowest_steps};
}

double least_hidden_tokens(const AttentionProblem& problem, Direction direction, double flops_per_second,
                           double link_bytes_per_second) {
  const double bytes = element_bytes(problem.dtype), group = static_cast<double>(problem.group_size());
  const double forward = bytes * flops_per_second / (2 * group * link_bytes_per_second);
  const double masked = problem.causal ? 2 : 1;
  if (direction == Direction::forward) return masked * forward;
  // K, V and as many fp32 sums (1 + 4 / b times the bytes) behind 5 products in place of 2.
  return masked * forward * (1 + 4 / bytes) / 2.5;
}

std::optional<double> least_hidden_tokens(const DistributedProgram& program, double flops_per_second,
                                          double link_bytes_per_second) {
  const bool rotates = program.ranks > 1 && program.ulysses == 1 && !gathers_keys(program.schedule);
  const bool in_balance = program.schedule != LinkSchedule::ring || !program.problem.causal;
  if (!rotates || !in_balance) return std::nullopt;
  return least_hidden_tokens(program.problem, program.direction, flops_per_second, link_bytes_per_second);
}

}  // namespace tilescope
