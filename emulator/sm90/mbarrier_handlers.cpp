// SPDX-License-Identifier: Apache-2.0
// mbarrier instructions. Arrivals release, waits that succeed acquire.
#include "emulator/machine/address_space.hpp"
#include "emulator/machine/happens_before.hpp"
#include "emulator/sm90/handlers.hpp"
#include "emulator/sm90/state.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint32_t kBarrierBytes = 8;

/// An mbarrier as an instruction names it.
struct Named {
  Cta& cta;
  std::uint32_t offset;

  Mbarrier& barrier() const { return state_of(cta).barriers.at(offset); }
  HappensBefore::Meeting meeting() const { return HappensBefore::kMbarrier + offset; }
};

Named named(Warp& warp, const ptx::Operand& operand, int lane) {
  const auto address = static_cast<std::uint32_t>(warp.address(operand, lane));
  Cta& owner = warp.cta.owner_of(address);
  owner.shared_bytes(address, kBarrierBytes, lane);
  return {owner, offset_of_shared_address(address)};
}

Outcome init(Warp& warp, const ptx::Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) {
    const Named at = named(warp, instruction.operands[0], lane);
    const auto arrivals = static_cast<std::uint32_t>(warp.value(instruction.operands[1], lane));
    state_of(at.cta).barriers.init(at.offset, arrivals);
    state_of(at.cta).barrier_proxy.stored(thread_of(warp, lane), at.offset, kBarrierBytes);
  });
  return Outcome::next;
}

Outcome invalidate(Warp& warp, const ptx::Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) {
    const Named at = named(warp, instruction.operands[0], lane);
    state_of(at.cta).barriers.invalidate(at.offset);
  });
  return Outcome::next;
}

void arrive_as(Warp& warp, int lane, const Named& at, std::uint32_t count) {
  Mbarrier& barrier = at.barrier();
  const std::uint32_t phase = barrier.phase();
  const bool ordered = at.cta.order && &at.cta == &warp.cta;
  if (ordered) at.cta.order->arrive(at.meeting(), thread_of(warp, lane));
  barrier.arrive(count);
  if (ordered && barrier.phase() != phase) at.cta.order->complete(at.meeting());
}

/// Operands: the state, which only `_` may take; the barrier; bytes, or a count.
template <bool kExpects>
Outcome arrive(Warp& warp, const ptx::Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) {
    const Named at = named(warp, instruction.operands[1], lane);
    std::uint32_t count = 1;
    if (instruction.operands.size() > 2) {
      count = static_cast<std::uint32_t>(warp.value(instruction.operands[2], lane));
    }
    if (kExpects) at.barrier().expect_bytes(count);
    arrive_as(warp, lane, at, kExpects ? 1 : count);
  });
  return Outcome::next;
}

/// Operands: the predicate, the barrier, the parity.
template <Outcome kIfNot>
Outcome ask(Warp& warp, const ptx::Instruction& instruction) {
  LaneMask over = 0;
  for_lanes(warp.active, [&](int lane) {
    const Named at = named(warp, instruction.operands[1], lane);
    if (!at.barrier().is_over(static_cast<std::uint32_t>(warp.value(instruction.operands[2], lane)))) return;
    over |= 1u << lane;
    if (at.cta.order) at.cta.order->acquire(at.meeting(), thread_of(warp, lane));
  });
  warp.set_predicate(instruction.operands[0], over);
  return over == warp.active ? Outcome::next : kIfNot;
}

Execution select_arrive(const ptx::Instruction& instruction) {
  if (instruction.operands[0].kind != ptx::Operand::Kind::none) {
    throw std::runtime_error("an mbarrier's state in a register is not known");
  }
  return {instruction.has("expect_tx") ? arrive<true> : arrive<false>};
}

template <Outcome kIfNot>
Execution select_ask(const ptx::Instruction& instruction) {
  if (!instruction.has("parity")) throw std::runtime_error("a wait for an mbarrier's state is not known");
  return {ask<kIfNot>};
}

}  // namespace

void add_mbarrier_handlers(HandlerTable& table) {
  table.add("mbarrier.init", [](const ptx::Instruction&) -> Execution { return {init}; });
  table.add("mbarrier.inval", [](const ptx::Instruction&) -> Execution { return {invalidate}; });
  table.add("mbarrier.arrive", select_arrive);
  table.add("mbarrier.try_wait", select_ask<Outcome::poll>);
  table.add("mbarrier.test_wait", select_ask<Outcome::next>);
}

}  // namespace tilescope::gpu::emulator
