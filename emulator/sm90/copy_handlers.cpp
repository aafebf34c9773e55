// SPDX-License-Identifier: Apache-2.0
// Bulk copies: boxes by tensor maps into shared memory, counted by mbarriers; boxes and runs of bytes out of
// it, stored or added, in groups of the thread that issues them. A store first reads its shared memory, which
// may then be written again, and later writes.
#include <algorithm>
#include <cstring>

#include "emulator/machine/address_space.hpp"
#include "emulator/machine/happens_before.hpp"
#include "emulator/machine/observer.hpp"
#include "emulator/sm90/handlers.hpp"
#include "emulator/sm90/state.hpp"
#include "emulator/sm90/tensor_map.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint32_t kChunk = 16, kBoxAlign = 128;

TensorMap map_at(Warp& warp, const ptx::Operand& operand, int lane) {
  const std::uint64_t address = warp.address(operand, lane);
  if (address % 64 != 0) throw Fault("a tensor map is not aligned to 64 bytes", lane);
  return decode_tensor_map(warp.cta.generic_bytes(address, 64, lane));
}

std::vector<std::int32_t> coordinates(const Warp& warp, const ptx::Operand& operand, int lane) {
  std::vector<std::int32_t> at;
  for (const ptx::Operand& element : operand.elements.at(1).elements) {
    at.push_back(static_cast<std::int32_t>(warp.value(element, lane)));
  }
  return at;
}

std::uint32_t shared_address(const Warp& warp, const ptx::Operand& operand, int lane, std::uint32_t align) {
  const auto address = static_cast<std::uint32_t>(warp.address(operand, lane));
  if (address % align != 0) {
    throw Fault("a bulk copy at " + std::to_string(address) + " of shared memory, which is not aligned to " +
                    std::to_string(align) + " bytes",
                lane);
  }
  return address;
}

void count_sectors(std::uint64_t& sectors, std::uint64_t address, std::size_t bytes) {
  sectors += (address + bytes - 1) / 32 - address / 32 + 1;
}

/// Tells the observer of the rows of a box.
void tell_box(const Cta& cta, const ptx::Instruction& instruction, const TensorMap& map,
              std::span<const std::int32_t> at, Purpose purpose, bool again = false) {
  Observer* const observer = cta.run.options.observer;
  if (!observer) return;
  for_each_box_row(map, at, [&](const BoxRow& row) {
    observer->engine(
        {cta, instruction, purpose, row.address - row.begin, map.row_bytes(), row.begin, row.end, again});
  });
}

// ---- Into shared memory.

/// A load into the shared memory of one CTA.
struct Load {
  TensorMap map;
  std::vector<std::int32_t> at;
  std::uint32_t target = 0, barrier = 0;  // offsets there
  HappensBefore::Clocks issued;
  const ptx::Instruction* instruction = nullptr;
  bool again = false;  // another CTA of the cluster receives the same
};

void arrive_bytes(Cta& cta, const Load& load, std::uint32_t agent, std::uint32_t clock) {
  Mbarrier& barrier = state_of(cta).barriers.at(load.barrier);
  const std::uint32_t phase = barrier.phase();
  const HappensBefore::Meeting meeting = HappensBefore::kMbarrier + load.barrier;
  if (cta.order) cta.order->arrive(meeting, agent, clock, load.issued);
  barrier.complete_bytes(load.map.box_bytes());
  if (cta.order && barrier.phase() != phase) cta.order->complete(meeting);
}

void land(Cta& cta, const Load& load) {
  const Memory& memory = cta.run.memory;
  const std::vector<std::byte> box =
      load_box(load.map, load.at, [&](std::uint64_t address, void* target, std::size_t bytes) {
        memory.check(address, bytes);
        std::memcpy(target, reinterpret_cast<const void*>(address), bytes);
        count_sectors(cta.run.report.global_sectors_read, address, bytes);
      });
  tell_box(cta, *load.instruction, load.map, load.at, Purpose::load, load.again);
  CtaState& state = state_of(cta);
  std::uint32_t agent = 0, clock = 0;
  if (cta.order) {
    agent = cta.order->agent("the copies of the mbarrier at " + std::to_string(load.barrier));
    clock = ++state.copies[load.barrier];
  }
  for_each_box_chunk(load.map, load.target, [&](std::uint32_t offset, std::uint32_t address) {
    std::memcpy(cta.shared_bytes(address, kChunk), &box[offset], kChunk);
    state.proxy.copied(address, kChunk);
    if (cta.order) cta.order->write(agent, clock, load.issued, address, kChunk, load.instruction->line);
  });
  arrive_bytes(cta, load, agent, clock);
}

void issue_load_to(Warp& warp, Cta& target, const ptx::Instruction& instruction, int lane, Load load) {
  CtaState& state = state_of(target);
  state.barriers.at(load.barrier);
  if (&target == &warp.cta) {
    if (warp.cta.run.options.fenced_initialisations)
      state.barrier_proxy.check(thread_of(warp, lane), load.barrier, 8, "counted at");
    for_each_box_chunk(load.map, load.target, [&](std::uint32_t, std::uint32_t address) {
      target.shared_bytes(address, kChunk, lane);
      state.proxy.check(thread_of(warp, lane), address, kChunk, "overwritten");
    });
  }
  AsyncOperation operation;
  operation.kind = AsyncKind::tensor_load;
  operation.owner = thread_of(warp, lane);
  operation.effect = [&target, load = std::move(load)] { land(target, load); };
  issue(target, instruction, std::move(operation));
}

Outcome load_tensor(Warp& warp, const ptx::Instruction& instruction) {
  const std::vector<ptx::Operand>& operands = instruction.operands;
  const bool multicast = instruction.has("multicast::cluster");
  for_lanes(warp.active, [&](int lane) {
    const std::uint32_t target = shared_address(warp, operands[0], lane, kBoxAlign);
    const std::uint32_t barrier = shared_address(warp, operands[2], lane, 8);
    Load load{map_at(warp, operands[1], lane),
              coordinates(warp, operands[1], lane),
              offset_of_shared_address(target),
              offset_of_shared_address(barrier),
              {},
              &instruction};
    if (warp.cta.order) {
      const std::uint32_t thread[] = {thread_of(warp, lane)};
      load.issued = warp.cta.order->issue(thread);
    }
    if (!multicast) {
      Cta& owner = warp.cta.owner_of(target);
      if (&owner != &warp.cta.owner_of(barrier)) throw Fault("a copy to one CTA, counted in another", lane);
      return issue_load_to(warp, owner, instruction, lane, load);
    }
    const std::uint64_t ctas = warp.value(operands[3], lane);
    for (std::size_t rank = 0; rank < warp.cta.cluster.ctas.size(); ++rank) {
      if ((ctas >> rank & 1) == 0) continue;
      issue_load_to(warp, *warp.cta.cluster.ctas[rank], instruction, lane, load);
      load.again = true;
    }
  });
  return Outcome::next;
}

// ---- Out of shared memory.

/// What a store has read.
struct Staged {
  std::vector<std::byte> bytes;
  bool is_read = false;
};

/// As shared_address(), in the CTA's own shared memory: its offset there.
std::uint32_t own_offset(Warp& warp, const ptx::Operand& operand, int lane, std::uint32_t align) {
  const std::uint32_t address = shared_address(warp, operand, lane, align);
  if (&warp.cta.owner_of(address) != &warp.cta) throw Fault("a bulk store out of another CTA", lane);
  return offset_of_shared_address(address);
}

/// Issues the two halves of a store. `chunks(visit)` calls visit(offset in the box, shared address).
template <class Chunks>
void issue_store(Warp& warp, const ptx::Instruction& instruction, int lane, std::size_t bytes,
                 const Chunks& chunks, std::function<void(const std::vector<std::byte>&)> write) {
  Cta& cta = warp.cta;
  const std::uint32_t thread = thread_of(warp, lane);
  chunks([&](std::uint32_t, std::uint32_t address) {
    cta.shared_bytes(address, kChunk, lane);
    state_of(cta).proxy.check(thread, address, kChunk, "read");
  });
  HappensBefore::Clocks issued;
  std::uint32_t agent = 0;
  if (cta.order) {
    const std::uint32_t threads[] = {thread};
    issued = cta.order->issue(threads);
    agent = cta.order->agent("the stores of thread " + std::to_string(thread));
  }
  auto staged = std::make_shared<Staged>();
  const auto read = [&cta, staged, bytes, chunks, issued = std::move(issued), agent,
                     clock = state_of(cta).bulk_groups[thread] + 1, line = instruction.line] {
    if (std::exchange(staged->is_read, true)) return;
    staged->bytes.resize(bytes);
    chunks([&](std::uint32_t offset, std::uint32_t address) {
      std::memcpy(&staged->bytes[offset], cta.shared_bytes(address, kChunk), kChunk);
      if (cta.order) cta.order->read(agent, clock, issued, address, kChunk, line);
    });
  };
  AsyncOperation operation;
  operation.owner = thread;
  operation.kind = AsyncKind::bulk_read;
  operation.effect = read;
  issue(cta, instruction, operation);
  operation.kind = AsyncKind::bulk;
  operation.effect = [read, staged, write = std::move(write)] {
    read();
    write(staged->bytes);
  };
  issue(cta, instruction, std::move(operation));
}

/// Writes or adds a run of bytes in global memory.
void put(Run& run, bool add, MapType type, std::uint64_t address, const void* source, std::size_t bytes) {
  run.memory.check(address, bytes);
  auto* target = reinterpret_cast<void*>(address);
  if (add) {
    add_elements(type, target, source, bytes);
  } else {
    std::memcpy(target, source, bytes);
  }
  count_sectors(run.report.global_sectors_written, address, bytes);
}

template <bool kAdd>
Outcome store_tensor(Warp& warp, const ptx::Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) {
    const TensorMap map = map_at(warp, instruction.operands[0], lane);
    const std::uint32_t source = own_offset(warp, instruction.operands[1], lane, kBoxAlign);
    Run& run = warp.cta.run;
    issue_store(
        warp, instruction, lane, map.box_bytes(),
        [map, source](const auto& visit) { for_each_box_chunk(map, source, visit); },
        [map, &run, &cta = warp.cta, &instruction,
         at = coordinates(warp, instruction.operands[0], lane)](const std::vector<std::byte>& box) {
          tell_box(cta, instruction, map, at, kAdd ? Purpose::reduce : Purpose::store);
          store_box(map, at, box, [&](std::uint64_t address, const void* bytes, std::size_t count) {
            put(run, kAdd, map.type, address, bytes, count);
          });
        });
  });
  return Outcome::next;
}

MapType type_of_addition(const ptx::Instruction& instruction) {
  switch (instruction.types.back()) {
    case ptx::Type::f32:
      return MapType::float32;
    case ptx::Type::f16:
      return MapType::float16;
    case ptx::Type::bf16:
      return MapType::bfloat16;
    default:
      throw std::runtime_error("a bulk addition of a type that is not known");
  }
}

/// cp.reduce.async.bulk: consecutive numbers.
Outcome add_bulk(Warp& warp, const ptx::Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) {
    const std::uint64_t target = warp.address(instruction.operands[0], lane);
    const std::uint32_t source = own_offset(warp, instruction.operands[1], lane, kChunk);
    const auto bytes = static_cast<std::uint32_t>(warp.value(instruction.operands[2], lane));
    if (target % kChunk != 0 || bytes % kChunk != 0) {
      throw Fault("a bulk copy takes multiples of 16 bytes", lane);
    }
    Run& run = warp.cta.run;
    const MapType type = type_of_addition(instruction);
    issue_store(
        warp, instruction, lane, bytes,
        [source, bytes](const auto& visit) {
          for (std::uint32_t offset = 0; offset < bytes; offset += kChunk) visit(offset, source + offset);
        },
        [=, &run, &instruction, &cta = warp.cta](const std::vector<std::byte>& numbers) {
          if (run.options.observer)
            run.options.observer->engine({cta, instruction, Purpose::reduce, target, bytes, 0, bytes});
          put(run, true, type, target, numbers.data(), numbers.size());
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

Outcome prefetch_map(Warp& warp, const ptx::Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) { map_at(warp, instruction.operands[0], lane); });
  return Outcome::next;
}

/// "cp.async.bulk.tensor.4d.shared::cluster.global...": what is named first is written.
Execution select_tensor_copy(const ptx::Instruction& instruction) {
  const std::string_view target = instruction.modifiers.at(4);
  if (target == "global" && instruction.has("bulk_group")) return {store_tensor<false>};
  if (target.starts_with("shared::") && instruction.has("mbarrier::complete_tx::bytes")) return {load_tensor};
  throw std::runtime_error("a bulk copy that is not known");
}
Execution select_tensor_addition(const ptx::Instruction& instruction) {
  if (!instruction.has("add")) throw std::runtime_error("a bulk reduction other than add");
  return {store_tensor<true>};
}
Execution select_bulk_addition(const ptx::Instruction& instruction) {
  if (!instruction.has("add") || instruction.modifiers.at(3) != "global") {
    throw std::runtime_error("a bulk reduction other than add to global memory");
  }
  type_of_addition(instruction);
  return {add_bulk};
}

}  // namespace

void add_copy_handlers(HandlerTable& table) {
  table.add("cp.async.bulk.tensor", select_tensor_copy);
  table.add("cp.reduce.async.bulk.tensor", select_tensor_addition);
  table.add("cp.reduce.async.bulk", select_bulk_addition);
  table.add("cp.async.bulk.commit_group",
            [](const ptx::Instruction&) -> Execution { return {commit_stores}; });
  table.add("cp.async.bulk.wait_group", [](const ptx::Instruction& instruction) -> Execution {
    return {instruction.has("read") ? wait_for_stores<true> : wait_for_stores<false>};
  });
  table.add("prefetch.tensormap", [](const ptx::Instruction&) -> Execution { return {prefetch_map}; });
}

}  // namespace tilescope::gpu::emulator
