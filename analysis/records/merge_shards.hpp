// SPDX-License-Identifier: Apache-2.0
// The records of the parts of one sweep (--shard I/N) as the record of the whole.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "analysis/records/run_record.hpp"

namespace tilescope {

/// @param parts each part's record with what error messages call it, in any order
/// @return the runs in the order of the whole sweep; the command line without --shard and --json; the cost is
/// the sum of the times and the largest memory
/// @throws BadInput if a part is missing, there twice, of another command or commit, or no part of anything
RunRecord merge_shards(std::vector<std::pair<std::string, RunRecord>> parts);

}  // namespace tilescope
