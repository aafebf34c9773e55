// SPDX-License-Identifier: Apache-2.0
// The passes of one direction of a run, taken together.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/records/run_record.hpp"

namespace tilescope {

/// The passes as if they were one, "delta+dkdv+dq", without a tile; nothing where the direction has none.
/// What some pass lacks is absent: a sum over the others would mislead. Compulsory bytes and useful FLOPs are
/// those of the direction, which needs neither what its passes hand each other nor what they compute twice.
/// Simulations contribute their bytes alone, times their median and their least.
std::optional<PassRecord> direction_total(const RunEntry& run, Direction direction);

/// DRAM bytes of the passes together by L2 size, at every size that some pass has. Between its sizes, and
/// past the last of them, a pass stays at what it had before.
std::map<std::int64_t, ReadWriteBytes> total_l2_curve(const RunEntry& run, Direction direction);

}  // namespace tilescope
