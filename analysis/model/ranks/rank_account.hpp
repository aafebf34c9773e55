// SPDX-License-Identifier: Apache-2.0
// What a distributed program asks of its ranks, on a model of them; as the record of `simulate --gpus`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/model/ranks/rank_model.hpp"
#include "analysis/records/distributed_record.hpp"
#include "distributed/counts/link_traffic.hpp"
#include "distributed/counts/rank_load.hpp"

namespace tilescope {

/// More ranks than these are not listed one by one; the one that sends most stands for them.
inline constexpr std::size_t kMostListedRanks = 16;

/// Added up once. The program must outlive this.
struct ProgramAccount {
  ProgramAccount(const DistributedProgram& program, const RankModel& model);
  const DistributedProgram& program;
  RankRates rates;
  std::vector<LinkBytes> link;
  std::vector<RankLoad> loads;
  RankTimeline timeline;
  Balance even;
  /// The rank that sends most.
  std::size_t busiest() const;
};

/// A cause of what P GPUs lose, as a share of their time.
struct LostShare {
  std::string_view cause;  // for people
  double share;
};
/// All causes; their shares and the efficiency add up to 1.
std::vector<LostShare> lost_shares(const RankTimeline& timeline);

/// A record that begins now, without its runs.
DistributedRecord distributed_record(const std::vector<std::string>& argv);
/// The start of a run: problem and schedule.
DistributedRun distributed_run(const AttentionProblem& problem, const DistributedOptions& options);
LinkRecord link_record(const LinkBytes& bytes);

/// The record of schedules on a model, all passes of each.
/// @param visit  called with each account @param refuse  of several, with those that cannot split the problem
DistributedRecord simulate_ranks(
    const std::vector<std::string>& argv, const AttentionProblem& problem,
    const std::vector<Direction>& directions, const std::vector<DistributedOptions>& schedules,
    const RankModel& model, const std::function<void(const ProgramAccount&)>& visit,
    const std::function<void(const DistributedOptions&, const BadInput&)>& refuse);

}  // namespace tilescope
