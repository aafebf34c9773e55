// SPDX-License-Identifier: Apache-2.0
// Parts that several kinds of records hold: a problem, groups of SMs.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_ref/schedule/problem.hpp"
#include "profiler/calibration/l2/l2_partitions.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope {

Json problem_json(const AttentionProblem& problem);
/// @throws BadInput naming the field, for a problem that validate() refuses too
AttentionProblem problem_from(const JsonField& field);

/// For the JSON library: {"sms": ..., "partition": ...}
void to_json(Json& json, const SmGroup& group);

/// @throws BadInput where a group has not 1 ... `most_sms` SMs, or its partition is not one of
/// `num_partitions`
std::vector<SmGroup> parse_sm_groups(const JsonField& field, std::int64_t most_sms,
                                     std::int64_t num_partitions);

}  // namespace tilescope
