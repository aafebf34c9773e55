// SPDX-License-Identifier: Apache-2.0
// The named barriers of a CTA: bar.sync, bar.arrive, bar.red, and their long names. Warps arrive as a whole,
// as the .aligned forms ask; bar.warp.sync is the scheduler's matter, which waits for its lanes.
#include <fmt/format.h>

#include "emulator/machine/cta_order.hpp"
#include "emulator/machine/lanes.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;

/// Threads of the warps of a CTA that are not done.
std::uint32_t living_threads(const Cta& cta) {
  std::uint32_t threads = 0;
  for (const auto& warp : cta.warps) threads += warp->live() != 0 ? kLanes : 0;
  return threads;
}

NamedBarrier& barrier_of(Warp& warp, const ptx::Operand& operand) {
  const std::uint64_t number = warp.value(operand, warp.leader());
  if (number >= warp.cta.barriers.size())
    throw Fault(fmt::format("barrier {} does not exist", number), warp.leader());
  return warp.cta.barriers[number];
}

/// A barrier's number, by which the search for races knows it.
HappensBefore::Meeting meeting_of(const Cta& cta, const NamedBarrier& barrier) {
  return static_cast<HappensBefore::Meeting>(&barrier - cta.barriers.data());
}

void complete(Cta& cta, NamedBarrier& barrier) {
  if (cta.order) cta.order->complete(meeting_of(cta, barrier));
  barrier.last = barrier.now;
  barrier.now = {};
  barrier.arrived_threads = 0;
  barrier.expected_threads = 0;
  ++barrier.phase;
}

/// Arrives with all threads of the warp. `threads` is the count that the instruction names, 0 for all of the
/// CTA: who names that number and who names none meet, and then all of them have to come.
void arrive(Warp& warp, NamedBarrier& barrier, std::uint64_t threads) {
  if (threads % kLanes != 0)
    throw Fault(fmt::format("a barrier of {} threads, which are not whole warps", threads));
  if (barrier.arrived_threads > 0) {
    const std::uint64_t all = warp.cta.warps.size() * kLanes, others = barrier.expected_threads;
    if (others == 0 && threads == all) barrier.expected_threads = static_cast<std::uint32_t>(all);
    if (others == all && threads == 0) threads = all;
    if (barrier.expected_threads != threads)
      throw Fault(fmt::format("a barrier of {} threads, at which others wait for {}",
                              threads == 0 ? all : threads, others == 0 ? all : others));
  }
  barrier.expected_threads = static_cast<std::uint32_t>(threads);
  barrier.arrived_threads += kLanes;
  if (warp.cta.order) {
    for_lanes(warp.active, [&](int lane) {
      warp.cta.order->arrive(meeting_of(warp.cta, barrier), static_cast<std::uint32_t>(warp.thread(lane)));
    });
  }
  const std::uint32_t expected = threads == 0 ? living_threads(warp.cta) : barrier.expected_threads;
  if (barrier.arrived_threads >= expected) complete(warp.cta, barrier);
}

/// Whether the barrier at which the warp waits has been completed since. Threads that are done no longer
/// count.
bool is_over(Warp& warp, NamedBarrier& barrier) {
  if (barrier.phase == warp.barrier_phase && barrier.expected_threads == 0 &&
      barrier.arrived_threads >= living_threads(warp.cta))
    complete(warp.cta, barrier);
  return barrier.phase != warp.barrier_phase;
}

std::uint64_t threads_of(Warp& warp, const Instruction& instruction, std::size_t operand) {
  return instruction.operands.size() > operand ? warp.value(instruction.operands[operand], warp.leader()) : 0;
}

/// Arrives once, and asks until the barrier is over.
template <class Contribute>
bool synchronise(Warp& warp, NamedBarrier& barrier, std::uint64_t threads, Contribute&& contribute) {
  if (!warp.at_barrier) {
    warp.at_barrier = true;
    warp.barrier_phase = barrier.phase;
    contribute(barrier.now);
    arrive(warp, barrier, threads);
  }
  if (!is_over(warp, barrier)) return false;
  warp.at_barrier = false;
  if (warp.cta.order) {
    for_lanes(warp.active, [&](int lane) {
      warp.cta.order->acquire(meeting_of(warp.cta, barrier), static_cast<std::uint32_t>(warp.thread(lane)));
    });
  }
  return true;
}

Outcome bar_sync(Warp& warp, const Instruction& instruction) {
  NamedBarrier& barrier = barrier_of(warp, instruction.operands[0]);
  return synchronise(warp, barrier, threads_of(warp, instruction, 1), [](auto&) {}) ? Outcome::next
                                                                                    : Outcome::wait;
}

Outcome bar_arrive(Warp& warp, const Instruction& instruction) {
  arrive(warp, barrier_of(warp, instruction.operands[0]), threads_of(warp, instruction, 1));
  return Outcome::next;
}

/// bar.red.OP d, a{, b}, p
Outcome bar_reduce(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  NamedBarrier& barrier = barrier_of(warp, operands[1]);
  const LaneMask mine = warp.predicate(operands.back()) & warp.active;
  const bool over = synchronise(warp, barrier, operands.size() == 4 ? threads_of(warp, instruction, 2) : 0,
                                [&](auto& sums) {
                                  sums.any |= mine != 0;
                                  sums.all &= mine == warp.active;
                                  sums.count += static_cast<std::uint32_t>(__builtin_popcount(mine));
                                });
  if (!over) return Outcome::wait;
  if (instruction.has("popc")) {
    for_lanes(warp.active, [&](int lane) { warp.set_value(operands[0], lane, barrier.last.count); });
  } else {
    warp.set_predicate(operands[0], (instruction.has("or") ? barrier.last.any : barrier.last.all) ? ~0u : 0u);
  }
  return Outcome::next;
}

Outcome meet(Warp& warp, const Instruction&) {
  join_lanes(warp, warp.active);
  return Outcome::next;
}

}  // namespace

void join_lanes(Warp& warp, LaneMask lanes) {
  if (!warp.cta.order) return;
  std::vector<std::uint32_t> threads;
  for_lanes(lanes, [&](int lane) { threads.push_back(static_cast<std::uint32_t>(warp.thread(lane))); });
  warp.cta.order->join(threads);
}

void add_barrier_handlers(HandlerTable& table) {
  for (const std::string name : {"bar", "bar.cta", "barrier", "barrier.cta"}) {
    table.add(name + ".sync", {bar_sync, Converge::warp}, "v|vv");
    table.add(name + ".arrive", {bar_arrive, Converge::warp}, "v|vv");
    table.add(name + ".red", {bar_reduce, Converge::warp}, "pvp|pvvp|rvp|rvvp");
  }
  table.add("bar.warp.sync", [](const Instruction& instruction) {
    operand_count(instruction, 1, 1);
    return Execution{&meet, Converge::any_place};
  });
}

}  // namespace tilescope::gpu::emulator
