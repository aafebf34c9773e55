// SPDX-License-Identifier: Apache-2.0
// mbarrier instructions. Arrivals release, waits that succeed acquire.
#include "emulator/machine/address_space.hpp"
#include "emulator/machine/cta_order.hpp"
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

/// What arriving does beside it: bytes to await (.expect_tx), one arrival fewer in later phases
/// (arrive_drop).
enum class Arrival { plain, expects, drops };

void arrive_as(Warp& warp, int lane, const Named& at, std::uint32_t count, Arrival arrival) {
  Mbarrier& barrier = at.barrier();
  const std::uint32_t phase = barrier.phase();
  if (at.cta.order) at.cta.order->arrive_by(at.meeting(), warp.cta.order->in_cluster(thread_of(warp, lane)));
  if (arrival == Arrival::drops) barrier.drop(count);
  barrier.arrive(count);
  if (at.cta.order && barrier.phase() != phase) at.cta.order->complete(at.meeting());
}

/// Operands: the state, a register or `_`, which arrivals elsewhere in the cluster may leave out; the
/// barrier; bytes, or a count. The state is how many phases are over.
template <Arrival arrival>
Outcome arrive(Warp& warp, const ptx::Instruction& instruction) {
  const auto& operands = instruction.operands;
  const std::size_t barrier = operands[0].kind == ptx::Operand::Kind::address ? 0 : 1;
  for_lanes(warp.active, [&](int lane) {
    const Named at = named(warp, operands[barrier], lane);
    std::uint32_t count = 1;
    if (operands.size() > barrier + 1)
      count = static_cast<std::uint32_t>(warp.value(operands[barrier + 1], lane));
    const std::uint32_t phase = at.barrier().phase();
    if (arrival == Arrival::expects) at.barrier().expect_bytes(count);
    arrive_as(warp, lane, at, arrival == Arrival::expects ? 1 : count, arrival);
    if (barrier == 1 && operands[0].kind == ptx::Operand::Kind::reg) warp.set_value(operands[0], lane, phase);
  });
  return Outcome::next;
}

/// cp.async.mbarrier.arrive: arrives when all copies (cp.async) that the thread issued before are there; such
/// an arrival is one more than the barrier counts, unless it is .noinc. Copies are a warp's here.
template <bool kCounted>
Outcome arrive_after_copies(Warp& warp, const ptx::Instruction& instruction) {
  Cta& cta = warp.cta;
  for_lanes(warp.active, [&](int lane) {
    const Named at = named(warp, instruction.operands[0], lane);
    if (&at.cta != &cta) throw Fault("copies are counted by a barrier of their own CTA", lane);
    if (!kCounted) at.barrier().expect_arrival();
    HappensBefore::Clocks issued;
    std::uint32_t agent = 0;
    HappensBefore::Clock clock = 0;
    if (cta.order) {
      const std::uint32_t thread[] = {thread_of(warp, lane)};
      issued = cta.order->issue(thread);
      agent = agent_of_copies(warp);
      clock = static_cast<HappensBefore::Clock>(cta.async.committed(AsyncKind::cp_async, warp.index) + 1);
    }
    AsyncOperation operation;
    operation.kind = AsyncKind::copy_arrival;
    operation.owner = warp.index;
    operation.effect = [at, agent, clock, issued = std::move(issued), owner = warp.index,
                        before = cta.async.pushed()] {
      at.cta.async.finish([&](const AsyncOperation& copy) {
        return copy.kind == AsyncKind::cp_async && copy.owner == owner && copy.number < before;
      });
      Mbarrier& barrier = at.barrier();
      const std::uint32_t phase = barrier.phase();
      if (at.cta.order) at.cta.order->arrive(at.meeting(), agent, clock, issued);
      barrier.arrive(1);
      if (at.cta.order && barrier.phase() != phase) at.cta.order->complete(at.meeting());
    };
    issue(cta, instruction, std::move(operation));
  });
  return Outcome::next;
}

/// mbarrier.expect_tx and complete_tx: bytes without an arrival.
template <bool kExpects>
Outcome count_bytes(Warp& warp, const ptx::Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) {
    Mbarrier& barrier = named(warp, instruction.operands[0], lane).barrier();
    const auto bytes = static_cast<std::uint32_t>(warp.value(instruction.operands[1], lane));
    kExpects ? barrier.expect_bytes(bytes) : barrier.complete_bytes(bytes);
  });
  return Outcome::next;
}

/// Operands: the predicate, the barrier, the phase's parity or the state that arriving in it gave.
template <Outcome kIfNot, bool kParity>
Outcome ask(Warp& warp, const ptx::Instruction& instruction) {
  LaneMask over = 0;
  for_lanes(warp.active, [&](int lane) {
    const Named at = named(warp, instruction.operands[1], lane);
    const auto phase = static_cast<std::uint32_t>(warp.value(instruction.operands[2], lane));
    if (kParity ? !at.barrier().is_over(phase) : at.barrier().phase() == phase) return;
    over |= 1u << lane;
    if (at.cta.order) at.cta.order->acquire(at.meeting(), thread_of(warp, lane));
  });
  warp.set_predicate(instruction.operands[0], over);
  return over == warp.active ? Outcome::next : kIfNot;
}

Execution select_arrive(const ptx::Instruction& instruction) {
  if (instruction.has("noComplete")) throw std::runtime_error("arrivals that may not complete are not known");
  if (instruction.opcode.starts_with("mbarrier.arrive_drop")) {
    if (instruction.has("expect_tx")) throw std::runtime_error("this form is not known");
    return {arrive<Arrival::drops>};
  }
  return {instruction.has("expect_tx") ? arrive<Arrival::expects> : arrive<Arrival::plain>};
}

template <Outcome kIfNot>
Execution select_ask(const ptx::Instruction& instruction) {
  return {instruction.has("parity") ? ask<kIfNot, true> : ask<kIfNot, false>};
}

}  // namespace

void add_mbarrier_handlers(HandlerTable& table) {
  constexpr std::string_view kArrival = "a|av|_a|_av", kQuestion = "pav|pavv";
  table.add("mbarrier.init", {init}, "av");
  table.add("mbarrier.inval", {invalidate}, "a");
  table.add("mbarrier.arrive", select_arrive, kArrival);
  table.add(
      "cp.async.mbarrier.arrive",
      [](const ptx::Instruction& instruction) -> Execution {
        return {instruction.has("noinc") ? arrive_after_copies<true> : arrive_after_copies<false>};
      },
      "a");
  table.add("mbarrier.arrive_drop", select_arrive, kArrival);
  table.add("mbarrier.expect_tx", {count_bytes<true>}, "av");
  table.add("mbarrier.complete_tx", {count_bytes<false>}, "av");
  table.add("mbarrier.try_wait", select_ask<Outcome::poll>, kQuestion);
  table.add("mbarrier.test_wait", select_ask<Outcome::next>, kQuestion);
}

}  // namespace tilescope::gpu::emulator
