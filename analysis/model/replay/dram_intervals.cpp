// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/dram_intervals.hpp"

#include <cmath>

namespace tilescope {
namespace {

using ByteInterval = std::array<std::int64_t, 2>;

ByteInterval interval_of(std::int64_t median, const std::optional<ByteInterval>& range,
                         const Beyond& beyond) {
  const ByteInterval ends = range.value_or(ByteInterval{median, median});
  return {std::llround(static_cast<double>(ends[0]) * std::exp(-beyond.below)),
          std::llround(static_cast<double>(ends[1]) * std::exp(beyond.above))};
}

}  // namespace

void add_dram_intervals(RunEntry& run, const Beyond& other_writes) {
  for (PassRecord& pass : run.passes) {
    SimulatedBytes& bytes = *pass.simulated;
    const bool all_keys = pass.direction == Direction::forward && !run.problem.masked();
    const bool whole_heads = run.algorithm == Algorithm::flash1;
    const Beyond& reads = whole_heads ? kReadsOfWholeHeads : all_keys ? kReadsOfAllKeys : kOtherReads;
    const Beyond& writes = whole_heads ? kWritesOfWholeHeads : other_writes;
    bytes.dram_read_interval = interval_of(bytes.dram_read_bytes, bytes.dram_read_range, reads);
    bytes.dram_write_interval = interval_of(bytes.dram_write_bytes, bytes.dram_write_range, writes);
  }
}

}  // namespace tilescope
