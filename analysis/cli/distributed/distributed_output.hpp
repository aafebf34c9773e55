// SPDX-License-Identifier: Apache-2.0
// What the commands say of a problem on several GPUs: tables, and a record of a schema of its own.
#pragma once

#include <string>
#include <vector>

#include "analysis/machine/machine.hpp"
#include "analysis/records/json/json_fields.hpp"
#include "cpu_ref/judge/equivalence.hpp"
#include "distributed/counts/link_traffic.hpp"
#include "distributed/counts/rank_load.hpp"
#include "distributed/counts/timeline.hpp"

namespace tilescope::cli {

/// "97.3 %"
std::string percent_text(double share);

/// "zigzag on 4 GPUs" or "ulysses-ring on 8 GPUs, 4 share heads"
std::string schedule_line(const AttentionProblem& problem, const DistributedOptions& options);

/// Rates of a machine's ranks.
struct LinkMachine {
  RankRates rates;
  std::string line;  // each rate and its kind, for people
};
/// In place of what the machine's file says, as typed.
struct TypedRates {
  std::optional<std::string> link_rate = std::nullopt;  // bytes a second
  std::optional<std::string> flop_rate = std::nullopt;  // TFLOP/s
};
/// @throws BadInput if nothing says how fast the link is
LinkMachine link_machine(const Machine& machine, ElementType dtype, const TypedRates& typed = {});

/// What a program asks of its ranks on a machine, added up once.
struct ProgramAccount {
  ProgramAccount(const DistributedProgram& program, const RankRates& rates);
  const DistributedProgram& program;
  RankRates rates;
  std::vector<LinkBytes> link;
  std::vector<RankLoad> loads;
  RankTimeline timeline;
  Balance even;
};
/// One row a rank, and what holds for all.
std::string distributed_table(const ProgramAccount& account);
/// One row a schedule and pass, of the GPU that sends most.
std::vector<std::string> comparison_heads();
std::vector<std::string> comparison_row(const ProgramAccount& account);
/// Of many GPUs, the one that sends most stands for all.
Json distributed_json(const ProgramAccount& account);

/// A record of schema tilescope.distributed/1, without its runs.
Json distributed_record(const std::vector<std::string>& argv);
/// The start of a run: problem and schedule.
Json distributed_run(const AttentionProblem& problem, const DistributedOptions& options);

}  // namespace tilescope::cli
