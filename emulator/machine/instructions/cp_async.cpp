// SPDX-License-Identifier: Apache-2.0
// cp.async and its groups. What a warp copies takes effect as one operation, and groups are those of the
// warp: lanes that diverge between a copy and its wait share them.
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "emulator/machine/address_space.hpp"
#include "emulator/machine/cta_order.hpp"
#include "emulator/machine/lanes.hpp"
#include "emulator/machine/memory_access.hpp"

namespace tilescope::gpu::emulator {

std::uint32_t agent_of_copies(Warp& warp) {
  return warp.cta.order->agent("the copies (cp.async) of warp " + std::to_string(warp.index));
}

namespace {

using ptx::Instruction;

struct Copy {
  std::byte* to;
  const std::byte* from;
  std::uint32_t bytes, filled;  // what is read, and what is written, the rest of it with zeros
};

std::vector<std::uint32_t> threads_of(const Warp& warp, LaneMask lanes) {
  std::vector<std::uint32_t> threads;
  for_lanes(lanes, [&](int lane) { threads.push_back(static_cast<std::uint32_t>(warp.thread(lane))); });
  return threads;
}

/// Tells what a copy writes.
void tell_order(Warp& warp, const ptx::Operand& to, std::uint32_t bytes) {
  Cta& cta = warp.cta;
  if (!cta.order) return;
  const HappensBefore::Clocks issued = cta.order->issue(threads_of(warp, warp.active));
  const auto group =
      static_cast<HappensBefore::Clock>(cta.async.committed(AsyncKind::cp_async, warp.index) + 1);
  for_lanes(warp.active, [&](int lane) {
    cta.order->write(agent_of_copies(warp), group, issued,
                     offset_of_shared_address(static_cast<std::uint32_t>(warp.address(to, lane))), bytes,
                     warp.instruction->line);
  });
}

/// The executing lanes know all but the newest `left` groups to be there.
void await_copies(Warp& warp, unsigned left) {
  const std::uint64_t groups = warp.cta.async.committed(AsyncKind::cp_async, warp.index);
  warp.cta.async.wait(AsyncKind::cp_async, warp.index, left);
  if (!warp.cta.order || groups <= left) return;
  for (const std::uint32_t thread : threads_of(warp, warp.active)) {
    warp.cta.order->await(thread, agent_of_copies(warp), static_cast<HappensBefore::Clock>(groups - left));
  }
}

/// cp.async.CACHE.shared.global [to], [from], bytes{, bytes to read}{, policy}
Outcome copy(Warp& warp, const Instruction& instruction) {
  const auto& operands = instruction.operands;
  const auto bytes = static_cast<std::uint32_t>(operands[2].value);
  const bool counts = operands.size() > 3 && !instruction.has("L2::cache_hint");
  const LaneMask all = warp.active;
  const Targets to = access(warp, operands[0], Reach::shared, Purpose::copy, bytes);
  tell_order(warp, operands[0], bytes);
  std::array<std::uint32_t, kLanes> reads{};
  for_lanes(all, [&](int lane) {
    reads[lane] = counts ? static_cast<std::uint32_t>(warp.value(operands[3], lane)) : bytes;
    if (reads[lane] > bytes) throw Fault("cp.async reads more than it writes", lane);
  });
  std::vector<Copy> copies;
  for (LaneMask left = all; left != 0; left &= ~warp.active) {
    const std::uint32_t read = reads[std::countr_zero(left)];
    warp.active = 0;
    for_lanes(left, [&](int lane) { warp.active |= reads[lane] == read ? 1u << lane : 0; });
    // What is not read may lie beyond the allocation; where nothing is read, the address may be any.
    const Targets from =
        read > 0 ? access_aligned(warp, operands[1], Reach::global, Purpose::load, read, bytes) : Targets{};
    for_lanes(warp.active, [&](int lane) { copies.push_back({to[lane], from[lane], read, bytes}); });
  }
  warp.active = all;
  const auto effect = [copies = std::move(copies)] {
    for (const Copy& piece : copies) {
      if (piece.bytes > 0) std::memcpy(piece.to, piece.from, piece.bytes);
      std::memset(piece.to + piece.bytes, 0, piece.filled - piece.bytes);
    }
  };
  if (warp.cta.run.options.adversary) {
    AsyncOperation operation;
    operation.kind = AsyncKind::cp_async;
    operation.owner = warp.index;
    operation.effect = effect;
    warp.cta.async.push(std::move(operation));
  } else {
    effect();
  }
  return Outcome::next;
}

Execution select_copy(const Instruction& instruction) {
  only_modifiers(instruction, {"async", "ca", "cg", "shared", "shared::cta", "global", "L2::64B", "L2::128B",
                               "L2::256B", "L2::cache_hint"});
  return {&copy};
}

Outcome commit(Warp& warp, const Instruction&) {
  warp.cta.async.commit(AsyncKind::cp_async, warp.index);
  return Outcome::next;
}
Outcome wait_group(Warp& warp, const Instruction& instruction) {
  await_copies(warp, static_cast<unsigned>(instruction.operands[0].value));
  return Outcome::next;
}
Outcome wait_all(Warp& warp, const Instruction&) {
  warp.cta.async.commit(AsyncKind::cp_async, warp.index);
  await_copies(warp, 0);
  return Outcome::next;
}

}  // namespace

void add_cp_async_handlers(HandlerTable& table) {
  constexpr std::string_view kCopied = "aav|aavv|aavvv";
  table.add("cp.async.ca", select_copy, kCopied);
  table.add("cp.async.cg", select_copy, kCopied);
  table.add("cp.async.commit_group", {&commit});
  table.add("cp.async.wait_group", {&wait_group}, "v");
  table.add("cp.async.wait_all", {&wait_all});
}

}  // namespace tilescope::gpu::emulator
