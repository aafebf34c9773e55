// SPDX-License-Identifier: Apache-2.0
// Groups of SMs in JSON, as machine files and records of ceilings hold them.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/records/json/json_fields.hpp"
#include "profiler/calibration/l2/l2_partitions.hpp"

namespace tilescope {

/// For the JSON library: {"sms": ..., "partition": ...}; "part" of older files is read, too.
void to_json(Json& json, const SmGroup& group);

/// @throws BadInput where a group has not 1 ... `most_sms` SMs, or its partition is not one of
/// `num_partitions`
std::vector<SmGroup> parse_sm_groups(const JsonField& field, std::int64_t most_sms,
                                     std::int64_t num_partitions);

}  // namespace tilescope
