// SPDX-License-Identifier: Apache-2.0
// What `simulate` and `verify` say of a problem on several GPUs: tables, and a record of a schema of its own.
#pragma once

#include <string>
#include <vector>

#include "analysis/machine/machine.hpp"
#include "analysis/records/json_fields.hpp"
#include "cpu_ref/judge/equivalence.hpp"
#include "distributed/counts/link_traffic.hpp"
#include "distributed/counts/timeline.hpp"

namespace tilescope::cli {

/// "zigzag on 4 GPUs" or "ulysses-ring on 8 GPUs, 4 share heads"
std::string schedule_line(const AttentionProblem& problem, const DistributedOptions& options);

/// Rates of a machine's ranks, and whether the file has those of the link.
struct LinkMachine {
  RankRates rates;
  std::string line;  // each rate and its kind, for people
};
/// @param link_rate  in place of the file's. @throws BadInput if neither says how fast the link is
LinkMachine link_machine(const Machine& machine, ElementType dtype,
                         const std::optional<std::string>& link_rate);

/// One row a rank, and what holds for all.
std::string distributed_table(const DistributedProgram& program, const DistributedOptions& options,
                              const RankRates& rates);
Json distributed_json(const DistributedProgram& program, const RankRates& rates);

/// The start of a record: schema, command, problem, schedule.
Json distributed_record(const std::vector<std::string>& argv, const AttentionProblem& problem,
                        const DistributedOptions& options);

}  // namespace tilescope::cli
