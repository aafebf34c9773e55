// SPDX-License-Identifier: Apache-2.0
// What sm_90a adds to the state of CTAs, clusters and warps, and what its handlers share.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "emulator/machine/handlers.hpp"
#include "emulator/sm90/accumulator.hpp"
#include "emulator/sm90/async_proxy.hpp"
#include "emulator/sm90/mbarrier.hpp"

namespace tilescope::gpu::emulator {

struct CtaState {
  Mbarriers barriers;
  AsyncProxy proxy;                                    // of data
  AsyncProxy barrier_proxy;                            // of the barriers' initialisations
  ResultCopies result_copies;                          // of the kernel
  std::vector<std::uint32_t> warp_registers;           // a thread of each warp; 0 as launched
  std::map<std::uint32_t, std::uint32_t> bulk_groups;  // committed, by thread
  std::map<std::uint32_t, std::uint32_t> copies;       // that an mbarrier has counted, by its address
};
struct ClusterState {
  std::uint64_t phase = 0;  // how often all had arrived at barrier.cluster
};
struct WarpState {
  Accumulators results;
  std::uint64_t product_groups = 0;                       // committed
  std::uint64_t cluster_arrivals = 0, cluster_waits = 0;  // at barrier.cluster
};

CtaState& state_of(Cta& cta);
ClusterState& state_of(Cluster& cluster);
WarpState& state_of(Warp& warp);

inline std::uint32_t thread_of(const Warp& warp, int lane) {
  return static_cast<std::uint32_t>(warp.thread(lane));
}

/// Queues an operation, half of them to take effect as late as they may; at once without an adversary. What
/// its effect throws is given the line of its issue.
void issue(Cta& cta, const ptx::Instruction& instruction, AsyncOperation operation);

}  // namespace tilescope::gpu::emulator
