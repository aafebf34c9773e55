// SPDX-License-Identifier: Apache-2.0
// The bytes of a launch, by line of its source and as sums that bear the names of the profiler's metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "emulator/machine/findings.hpp"

namespace tilescope::gpu::emulator {

/// Of one line of the source. Bytes cross between SMs and L2.
struct LineCounts {
  SourceLine place;
  std::string text;                       // of its first instruction, where there is no source
  std::uint64_t instructions = 0;         // of warps
  std::uint64_t requests = 0;             // to global memory, a warp's one each
  std::uint64_t asked_bytes = 0;          // by lanes, or of boxes what exists
  std::uint64_t sectors = 0;              // of 32 bytes, of all requests
  std::uint64_t least_sectors = 0;        // that so many different bytes could have lain in
  std::uint64_t read_bytes = 0;           // L1's hits left out, as modelled
  std::uint64_t write_bytes = 0;          // stores, reductions and atomics in whole sectors
  std::uint64_t least_write_bytes = 0;    // as far as L1 may merge partial ones
  std::uint64_t l1_hit_bytes = 0;         // modelled
  std::uint64_t beyond_tensor_bytes = 0;  // part of read_bytes: zeros of boxes
  std::uint64_t shared_requests = 0;
  std::uint64_t wavefronts = 0, least_wavefronts = 0;  // of shared memory

  double sectors_per_request() const {
    return requests == 0 ? 0 : static_cast<double>(sectors) / static_cast<double>(requests);
  }
  std::uint64_t excess_bytes() const { return (sectors - least_sectors) * 32; }
};

struct KernelCounts {
  std::vector<LineCounts> lines;  // by file and line; those that touch no memory left out
  /// By the profiler's names: sm_l2_read_bytes, sm_l2_write_bytes, reduction_bytes, ...
  std::map<std::string, double> metrics;
  std::uint64_t least_read_bytes = 0;   // of sm_l2_read_bytes, where L1 keeps all that loads leave there
  std::uint64_t least_write_bytes = 0;  // of sm_l2_write_bytes, where L1 merges all that it may
  std::uint64_t constant_bytes = 0;     // asked of .const, which no metric has
  /// Different sectors: what DRAM must move where L2 holds everything.
  std::uint64_t must_read_bytes = 0, must_write_bytes = 0;
  /// Of sectors that stores covered in part for good, which the L2 reads from DRAM before it gives them up.
  std::uint64_t filled_bytes = 0;
  std::vector<std::string> notes;  // what of these is modelled, and how
};

}  // namespace tilescope::gpu::emulator
