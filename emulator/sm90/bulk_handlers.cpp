// SPDX-License-Identifier: Apache-2.0
// Bulk copies of runs of bytes, without a tensor map: into shared memory, counted by an mbarrier; out of it,
// stored or reduced, in groups of the thread that issues them; between the shared memories of a cluster.
#include <cstring>
#include <utility>

#include "emulator/machine/address_space.hpp"
#include "emulator/machine/observer.hpp"
#include "emulator/sm90/bulk_copy.hpp"
#include "emulator/sm90/handlers.hpp"

namespace tilescope::gpu::emulator {
namespace {

/// The bytes that a copy moves.
std::uint32_t copied_bytes(const Warp& warp, const ptx::Operand& operand, int lane) {
  const auto bytes = static_cast<std::uint32_t>(warp.value(operand, lane));
  if (bytes % kBulkChunk != 0) throw Fault("a bulk copy takes multiples of 16 bytes", lane);
  return bytes;
}

std::uint64_t global_address(const Warp& warp, const ptx::Operand& operand, int lane) {
  const std::uint64_t address = warp.address(operand, lane);
  if (address % kBulkChunk != 0)
    throw Fault("a bulk copy takes global addresses that are multiples of 16", lane);
  return address;
}

Chunks chunks_of_run(std::uint32_t begin, std::uint32_t bytes) {
  return [begin, bytes](const ChunkVisitor& visit) {
    for (std::uint32_t offset = 0; offset < bytes; offset += kBulkChunk) visit(offset, begin + offset);
  };
}

void tell_run(const Cta& cta, const ptx::Instruction& instruction, Purpose purpose, std::uint64_t address,
              std::uint32_t bytes, bool again = false) {
  if (cta.run.options.observer)
    cta.run.options.observer->engine({cta, instruction, purpose, address, bytes, 0, bytes, again});
}

/// cp.async.bulk.shared::cluster.global [to], [from], bytes, [mbarrier]{, mask}{, policy}
Outcome load_run(Warp& warp, const ptx::Instruction& instruction) {
  const auto& operands = instruction.operands;
  for_lanes(warp.active, [&](int lane) {
    const std::uint32_t target = shared_address(warp, operands[0], lane, kBulkChunk);
    const std::uint32_t barrier = shared_address(warp, operands[3], lane, 8);
    const std::uint64_t from = global_address(warp, operands[1], lane);
    const std::uint32_t bytes = copied_bytes(warp, operands[2], lane);
    warp.cta.run.memory.check(from, bytes, lane);
    const auto read = [from, bytes, &instruction](Cta& cta, bool again) {
      std::vector<std::byte> run(bytes);
      get(cta, from, run.data(), bytes);
      tell_run(cta, instruction, Purpose::load, from, bytes, again);
      return run;
    };
    issue_load(warp, instruction, lane, target, barrier,
               instruction.has("multicast::cluster") ? &operands[4] : nullptr,
               {bytes, offset_of_shared_address(barrier),
                chunks_of_run(offset_of_shared_address(target), bytes), read});
  });
  return Outcome::next;
}

/// cp.async.bulk.shared::cluster.shared::cta [to], [from], bytes, [mbarrier]
Outcome send_run(Warp& warp, const ptx::Instruction& instruction) {
  const auto& operands = instruction.operands;
  for_lanes(warp.active, [&](int lane) {
    const std::uint32_t target = shared_address(warp, operands[0], lane, kBulkChunk);
    const std::uint32_t barrier = shared_address(warp, operands[3], lane, 8);
    const std::uint32_t from = own_offset(warp, operands[1], lane, kBulkChunk);
    const std::uint32_t bytes = copied_bytes(warp, operands[2], lane);
    Cta& sender = warp.cta;
    chunks_of_run(from, bytes)([&](std::uint32_t, std::uint32_t address) {
      sender.shared_bytes(address, kBulkChunk, lane);
      state_of(sender).proxy.check(thread_of(warp, lane), address, kBulkChunk, "read");
    });
    const auto read = [&sender, from, bytes](Cta&, bool) {
      std::vector<std::byte> run(bytes);
      std::memcpy(run.data(), sender.shared_range(from, bytes), bytes);
      return run;
    };
    BulkLoad sent{bytes, offset_of_shared_address(barrier),
                  chunks_of_run(offset_of_shared_address(target), bytes), read};
    sent.sender = &sender;
    sent.from = from;
    issue_load(warp, instruction, lane, target, barrier, nullptr, std::move(sent));
  });
  return Outcome::next;
}

/// cp.async.bulk.global.shared::cta [to], [from], bytes, and cp.reduce.async.bulk: consecutive numbers
template <bool kReduces>
Outcome store_run(Warp& warp, const ptx::Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) {
    const std::uint64_t target = global_address(warp, instruction.operands[0], lane);
    const std::uint32_t source = own_offset(warp, instruction.operands[1], lane, kBulkChunk);
    const std::uint32_t bytes = copied_bytes(warp, instruction.operands[2], lane);
    Run& run = warp.cta.run;
    const Reduction reduction = kReduces ? reduction_of(instruction) : Reduction::none;
    const MapType type = kReduces ? number_type_of(instruction) : MapType::uint32;
    issue_store(warp, instruction, lane, bytes, chunks_of_run(source, bytes),
                [=, &run, &instruction, &cta = warp.cta](const std::vector<std::byte>& numbers) {
                  tell_run(cta, instruction, kReduces ? Purpose::reduce : Purpose::store, target, bytes);
                  put(run, reduction, type, target, numbers.data(), numbers.size());
                });
  });
  return Outcome::next;
}

// ---- Groups.

Outcome commit_stores(Warp& warp, const ptx::Instruction&) {
  for_lanes(warp.active, [&](int lane) {
    const std::uint32_t thread = thread_of(warp, lane);
    warp.cta.async.commit(AsyncKind::bulk_read, thread);
    warp.cta.async.commit(AsyncKind::bulk, thread);
    ++state_of(warp.cta).bulk_groups[thread];
  });
  return Outcome::next;
}

template <bool kReadsOnly>
Outcome wait_for_stores(Warp& warp, const ptx::Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) {
    const std::uint32_t thread = thread_of(warp, lane);
    const auto left = static_cast<std::uint32_t>(warp.value(instruction.operands[0], lane));
    warp.cta.async.wait(AsyncKind::bulk_read, thread, left);
    if (!kReadsOnly) warp.cta.async.wait(AsyncKind::bulk, thread, left);
    const std::uint32_t groups = state_of(warp.cta).bulk_groups[thread];
    const std::string name = "the stores of thread " + std::to_string(thread);
    if (warp.cta.order && groups > left && warp.cta.order->has_agent(name))
      warp.cta.order->await(thread, warp.cta.order->agent(name), groups - left);
  });
  return Outcome::next;
}

/// What is named first is written.
Execution select_copy_of_run(const ptx::Instruction& instruction) {
  const std::string_view to = instruction.modifiers.at(2), from = instruction.modifiers.at(3);
  const bool to_many = instruction.has("multicast::cluster");
  if (instruction.has("cp_mask"))
    throw std::runtime_error("a bulk copy of some bytes of each chunk is not known");
  if (to == "prefetch" && operands_fit(instruction, "av|avv")) return {simply<Outcome::next>};
  if (to == "global" && instruction.has("bulk_group") && operands_fit(instruction, "aav|aavv"))
    return {store_run<false>};
  const bool is_counted = instruction.has("mbarrier::complete_tx::bytes") && to.starts_with("shared::");
  if (is_counted && from == "global" && operands_fit(instruction, to_many ? "aavav|aavavv" : "aava|aavav"))
    return {load_run};
  if (is_counted && from == "shared::cta" && operands_fit(instruction, "aava")) return {send_run};
  throw std::runtime_error("a bulk copy that is not known");
}
Execution select_reduction_of_run(const ptx::Instruction& instruction) {
  if (instruction.modifiers.at(3) != "global")
    throw std::runtime_error("a bulk reduction other than to global memory");
  reduction_of(instruction);
  number_type_of(instruction);
  return {store_run<true>};
}

}  // namespace

void add_bulk_handlers(HandlerTable& table) {
  table.add("cp.async.bulk", select_copy_of_run);
  table.add("cp.reduce.async.bulk", select_reduction_of_run, "aav|aavv");
  table.add("cp.async.bulk.commit_group", {commit_stores});
  table.add(
      "cp.async.bulk.wait_group",
      [](const ptx::Instruction& instruction) -> Execution {
        return {instruction.has("read") ? wait_for_stores<true> : wait_for_stores<false>};
      },
      "v");
}

}  // namespace tilescope::gpu::emulator
