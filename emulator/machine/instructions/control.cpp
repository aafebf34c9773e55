// SPDX-License-Identifier: Apache-2.0
// Branches, exits, and instructions that only say something to the device.
#include <string>

#include "emulator/machine/cta_order.hpp"
#include "emulator/machine/lanes.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;

/// brx.idx: where each lane goes on, by its index into the list of targets
Outcome branch_by_index(Warp& warp, const Instruction& instruction) {
  const std::size_t targets = instruction.operands.size() - 1;  // which the parser has read
  for_lanes(warp.active, [&](int lane) {
    const std::uint64_t index = warp.value(instruction.operands[0], lane);
    if (index >= targets)
      throw Fault("branch target " + std::to_string(index) + " of " + std::to_string(targets), lane);
    warp.next[static_cast<std::size_t>(lane)] = instruction.operands[1 + index].offset;
  });
  return Outcome::scatter;
}

Outcome trap(Warp& warp, const Instruction&) { throw Fault("trap", warp.leader()); }

/// What follows an arrival at the cluster's barrier that is relaxed rests on it.
Outcome fence(Warp& warp, const Instruction&) {
  Cluster& cluster = warp.cta.cluster;
  for_lanes(cluster.account && cluster.ctas.size() > 1 ? warp.active : 0, [&](int lane) {
    cluster.account->fence(warp.cta.order->in_cluster(static_cast<std::uint32_t>(warp.thread(lane))));
  });
  return Outcome::next;
}
Execution select_fence(const Instruction& instruction) {
  if (instruction.has("cta")) return {&simply<Outcome::next>};
  return {&fence};
}

/// A policy for caches, which there are none of.
Outcome no_policy(Warp& warp, const Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) { warp.set_value(instruction.operands[0], lane, 0); });
  return Outcome::next;
}

}  // namespace

void add_control_handlers(HandlerTable& table) {
  table.add("bra", {&simply<Outcome::jump>}, "l");
  table.add("brx.idx", {&branch_by_index});
  table.add("exit", {&simply<Outcome::exit>});
  table.add("nanosleep", {&simply<Outcome::poll>});
  table.add("trap", {&trap});
  table.add("brkpt", {&trap});
  table.add("prefetch.global", {&simply<Outcome::next>});
  table.add("prefetchu", {&simply<Outcome::next>});
  table.add("discard", {&simply<Outcome::next>});
  table.add("applypriority", {&simply<Outcome::next>});
  table.add("pmevent", {&simply<Outcome::next>});
  table.add("createpolicy", {&no_policy}, "r");
  for (const char* fence : {"membar.gl", "membar.cta", "membar.sys", "fence.acq_rel", "fence.sc"})
    table.add(fence, select_fence);
}

}  // namespace tilescope::gpu::emulator
