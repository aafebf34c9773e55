// SPDX-License-Identifier: Apache-2.0
// Between which bytes nine of ten launches read from DRAM, and write to it, round what a replay says.
#pragma once

#include "analysis/records/run_record.hpp"

namespace tilescope {

/// How far a measurement may lie outside of what the layouts of the pages range over, as a natural logarithm:
/// below the least, and above the largest.
struct Beyond {
  double below, above;
};

/// What 95 of 100 spent passes keep to at either end, which are conformal intervals of 90 % (Romano,
/// Patterson and Candes 2019). Passes that go by all keys, unmasked forward ones, are a stratum of their own,
/// since the replay has too few reads there, and so are those with a CTA a head, which may come to the edge
/// of a partition, and writes of other libraries, whose spills count. Source:
/// analysis/studies/draw/intervals, which makes these numbers.
inline constexpr Beyond kReadsOfAllKeys{0.022, 0.086}, kReadsOfWholeHeads{1.082, 0.039},
    kOtherReads{0.018, 0.149}, kWrites{0.028, 0.105}, kWritesOfWholeHeads{0.499, 0.338},
    kWritesOfLibraries{0.098, 0.105};

/// Gives each pass the intervals of its DRAM bytes. Passes that were replayed in one layout have that one's
/// bytes for a range: of 280 passes of an H200 whose tensors lay in one piece, 270 have their reads inside.
/// @param run  replayed on an L2 in two partitions, which counters of an H200 and an H100 judged
void add_dram_intervals(RunEntry& run, const Beyond& other_writes = kWrites);

}  // namespace tilescope
