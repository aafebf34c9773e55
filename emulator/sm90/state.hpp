// SPDX-License-Identifier: Apache-2.0
// What sm_90a adds to the state of CTAs, clusters and warps, and what its handlers share.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "emulator/machine/handlers.hpp"
#include "emulator/sm90/accumulator.hpp"
#include "emulator/sm90/mbarrier.hpp"

namespace tilescope::gpu::emulator {

/// Which bytes of shared memory ordinary stores wrote and no fence.proxy.async followed: the copy engine and
/// the tensor cores may not see them. A fence counts if the thread that wrote executed it, or the one that
/// issues the operation, after the store. Source: PTX ISA, "Memory Consistency Model: Proxies".
class AsyncProxy {
 public:
  /// @param kernel  whose variables are named
  AsyncProxy(std::uint32_t threads, std::uint32_t shared_end, const ptx::Kernel* kernel);

  void stored(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes);
  void fence(std::uint32_t thread);
  /// @throws Fault if the bytes hold what was stored without a fence
  /// @param use  what is issued: "read", "overwritten"
  void check(std::uint32_t issuer, std::uint32_t offset, std::uint32_t bytes, const char* use) const;
  /// A copy wrote them.
  void copied(std::uint32_t offset, std::uint32_t bytes);

 private:
  struct Store {
    std::uint32_t thread;
    std::uint32_t time;  // 0: none since a copy
  };
  const ptx::Kernel* kernel_;
  std::uint32_t now_ = 1;                  // counts fences
  std::vector<std::uint32_t> last_fence_;  // of threads
  std::vector<Store> stores_;              // the last of each word
};

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
