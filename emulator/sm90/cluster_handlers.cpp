// SPDX-License-Identifier: Apache-2.0
// Clusters, fences, the registers that warpgroups hand to each other, grids that depend on each other.
#include "emulator/machine/address_space.hpp"
#include "emulator/machine/cta_order.hpp"
#include "emulator/sm90/handlers.hpp"
#include "emulator/sm90/state.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint32_t kSmRegisters = 65536;

// ---- Clusters.

/// Addresses of shared memory; generic ones where the instruction names no space.
Outcome map_to_rank(Warp& warp, const ptx::Instruction& instruction) {
  const std::uint64_t window = instruction.has("shared::cluster") ? 0 : kSharedWindow;
  for_lanes(warp.active, [&](int lane) {
    const auto address = static_cast<std::uint32_t>(warp.value(instruction.operands[1], lane));
    const auto rank = static_cast<unsigned>(warp.value(instruction.operands[2], lane));
    if (rank >= warp.cta.cluster.ctas.size()) throw Fault("the cluster has no such rank", lane);
    warp.set_value(instruction.operands[0], lane, window + shared_address_of_rank(address, rank));
  });
  return Outcome::next;
}
Outcome rank_of_address(Warp& warp, const ptx::Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) {
    const auto address = static_cast<std::uint32_t>(warp.value(instruction.operands[1], lane));
    warp.set_value(instruction.operands[0], lane, warp.cta.owner_of(address).rank);
  });
  return Outcome::next;
}

/// Whether all have arrived at the barrier of this phase; warps that have left count as arrived.
bool all_arrived(Cluster& cluster, std::uint64_t phase) {
  for (const auto& cta : cluster.ctas) {
    for (const auto& warp : cta->warps) {
      if (warp->live() != 0 && state_of(*warp).cluster_arrivals <= phase) return false;
    }
  }
  return true;
}

/// Threads that have left count as arrived, with all that they did.
void complete_in_order(Cluster& cluster) {
  if (!cluster.account) return;
  for (const auto& cta : cluster.ctas) {
    for (const auto& warp : cta->warps) {
      for (int lane = 0; warp->live() == 0 && lane < ptx::kLanes; ++lane)
        cluster.account->arrive(HappensBefore::kCluster, cta->order->in_cluster(thread_of(*warp, lane)));
    }
  }
  cluster.account->complete(HappensBefore::kCluster);
}

Outcome arrive_in_cluster(Warp& warp, const ptx::Instruction& instruction) {
  WarpState& state = state_of(warp);
  if (state.cluster_arrivals++ > state.cluster_waits) {
    throw Fault("a warp arrives at its cluster's barrier again and has not waited");
  }
  for_lanes(warp.cta.order ? warp.active : 0, [&](int lane) {
    const std::uint32_t thread = warp.cta.order->in_cluster(thread_of(warp, lane));
    HappensBefore& account = warp.cta.order->account();
    instruction.has("relaxed") ? account.arrive_relaxed(HappensBefore::kCluster, thread)
                               : account.arrive(HappensBefore::kCluster, thread);
  });
  return Outcome::next;
}

Outcome wait_for_cluster(Warp& warp, const ptx::Instruction&) {
  WarpState& state = state_of(warp);
  ClusterState& cluster = state_of(warp.cta.cluster);
  if (state.cluster_waits == state.cluster_arrivals) {
    throw Fault("a warp waits at its cluster's barrier and has not arrived");
  }
  if (cluster.phase < state.cluster_arrivals) {
    if (!all_arrived(warp.cta.cluster, cluster.phase)) return Outcome::wait;
    ++cluster.phase;
    complete_in_order(warp.cta.cluster);
  }
  ++state.cluster_waits;
  for_lanes(warp.cta.order ? warp.active : 0, [&](int lane) {
    const std::uint32_t thread = warp.cta.order->in_cluster(thread_of(warp, lane));
    warp.cta.order->account().acquire(HappensBefore::kCluster, thread);
  });
  return Outcome::next;
}

// ---- Fences.

Outcome fence_proxy(Warp& warp, const ptx::Instruction&) {
  CtaState& state = state_of(warp.cta);
  for_lanes(warp.active, [&](int lane) {
    state.proxy.fence(thread_of(warp, lane));
    state.barrier_proxy.fence(thread_of(warp, lane));
  });
  return Outcome::next;
}
Outcome fence_barrier_init(Warp& warp, const ptx::Instruction&) {
  for_lanes(warp.active, [&](int lane) { state_of(warp.cta).barrier_proxy.fence(thread_of(warp, lane)); });
  return Outcome::next;
}

// ---- Registers.

std::uint32_t registers_asked_for(const Warp& warp, const ptx::Instruction& instruction) {
  const auto registers = static_cast<std::uint32_t>(warp.value(instruction.operands[0], warp.leader()));
  if (registers < 24 || registers > 256 || registers % 8 != 0) {
    throw Fault("setmaxnreg takes multiples of 8 from 24 to 256");
  }
  return registers;
}

/// A thread's share at the launch, of an SM that holds one CTA: no kernel has more.
std::uint32_t launched_registers(const Cta& cta) {
  return kSmRegisters / static_cast<std::uint32_t>(cta.warps.size() * ptx::kLanes) / 8 * 8;
}

Outcome give_up_registers(Warp& warp, const ptx::Instruction& instruction) {
  state_of(warp.cta).warp_registers[warp.index] = registers_asked_for(warp, instruction);
  return Outcome::next;
}

/// Waits until the CTA's warps together have no more than an SM.
Outcome take_registers(Warp& warp, const ptx::Instruction& instruction) {
  const std::uint32_t asked = registers_asked_for(warp, instruction);
  std::vector<std::uint32_t>& held = state_of(warp.cta).warp_registers;
  std::uint32_t sum = asked;
  for (std::size_t other = 0; other < held.size(); ++other) {
    if (other != warp.index) sum += held[other] != 0 ? held[other] : launched_registers(warp.cta);
  }
  if (sum * ptx::kLanes > kSmRegisters) return Outcome::wait;
  held[warp.index] = asked;
  return Outcome::next;
}

Execution refuse_multicast_object(const ptx::Instruction&) {
  throw std::runtime_error(
      "multimem reaches the memories of several devices through a multicast object, and one device is "
      "emulated");
}

/// Before a CTA's first step.
void begin_cta(Cta& cta) {
  const auto threads = static_cast<std::uint32_t>(cta.warps.size() * ptx::kLanes);
  const auto shared_end = static_cast<std::uint32_t>(cta.shared.size());
  const ptx::Kernel* const kernel = cta.run.launch.kernel;
  cta.extension = CtaState{Mbarriers(kernel),
                           AsyncProxy(threads, shared_end, kernel),
                           AsyncProxy(threads, shared_end, kernel),
                           find_result_copies(*kernel),
                           std::vector<std::uint32_t>(cta.warps.size()),
                           {},
                           {}};
  cta.on_shared_store = [](Warp& writer, Cta& owner, int lane, std::uint32_t offset, std::uint32_t bytes) {
    if (&writer.cta == &owner) state_of(owner).proxy.stored(thread_of(writer, lane), offset, bytes);
  };
}

/// When its last thread has left: its shared memory is another's.
void end_cta(Cta& cta) {
  for (const AsyncOperation& operation : cta.async.operations()) {
    if (operation.kind == AsyncKind::tensor_load) throw Fault("a CTA ends before a copy to it has landed");
    if (operation.kind == AsyncKind::bulk_read) {
      throw Fault("a CTA ends without a wait for its stores to have read shared memory");
    }
    if (operation.kind == AsyncKind::wgmma) throw Fault("a CTA ends without a wait for its products");
  }
}

}  // namespace

void add_cluster_handlers(HandlerTable& table) {
  table.add("mapa", {map_to_rank}, "rvv");
  table.add("getctarank", {rank_of_address}, "rv");
  table.add("barrier.cluster.arrive", {arrive_in_cluster, Converge::warp});
  table.add("barrier.cluster.wait", {wait_for_cluster, Converge::warp});
  table.add("fence.proxy.async", {fence_proxy});
  table.add("fence.proxy.alias", {simply<Outcome::next>});
  table.add("fence.mbarrier_init", {fence_barrier_init});
  table.add("setmaxnreg.dec", {give_up_registers, Converge::warp}, "v");
  table.add("setmaxnreg.inc", {take_registers, Converge::warp}, "v");
  // Launches go on one after the other: what came before has ended.
  table.add("griddepcontrol.wait", {simply<Outcome::next>});
  table.add("griddepcontrol.launch_dependents", {simply<Outcome::next>});
  table.add("multimem", refuse_multicast_object);
  table.on_cta_begin = begin_cta;
  table.on_cta_end = end_cta;
}

void add_sm90_handlers(HandlerTable& table) {
  add_wgmma_handlers(table);
  add_copy_handlers(table);
  add_bulk_handlers(table);
  add_async_store_handlers(table);
  add_tensormap_handlers(table);
  add_mbarrier_handlers(table);
  add_cluster_handlers(table);
}

}  // namespace tilescope::gpu::emulator
