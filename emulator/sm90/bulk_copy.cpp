// SPDX-License-Identifier: Apache-2.0
#include "emulator/sm90/bulk_copy.hpp"

#include <cstring>
#include <memory>
#include <utility>

#include "emulator/machine/address_space.hpp"
#include "emulator/machine/shared_places.hpp"

namespace tilescope::gpu::emulator {
namespace {

/// A load on its way to a CTA.
struct Landing {
  BulkLoad load;
  HappensBefore::Clocks issued;
  int line = 0;
  bool again = false;
};

void arrive_bytes(Cta& cta, const Landing& landing, std::uint32_t agent, std::uint32_t clock) {
  Mbarrier& barrier = state_of(cta).barriers.at(landing.load.barrier);
  const std::uint32_t phase = barrier.phase();
  const HappensBefore::Meeting meeting = HappensBefore::kMbarrier + landing.load.barrier;
  if (cta.order) cta.order->arrive(meeting, agent, clock, landing.issued);
  barrier.complete_bytes(landing.load.bytes);
  if (cta.order && barrier.phase() != phase) cta.order->complete(meeting);
}

void land(Cta& cta, const Landing& landing) {
  const BulkLoad& load = landing.load;
  const std::vector<std::byte> bytes = load.read(cta, landing.again);
  CtaState& state = state_of(cta);
  std::uint32_t agent = 0, clock = 0;
  if (cta.order) {
    agent = cta.order->agent("the copies of " + state.barriers.named(load.barrier));
    clock = ++state.copies[load.barrier];
    if (load.sender)
      load.sender->order->read(agent, clock, landing.issued, load.from, load.bytes, landing.line);
  }
  load.chunks([&](std::uint32_t offset, std::uint32_t address) {
    std::memcpy(cta.shared_bytes(address, load.chunk), &bytes[offset], load.chunk);
    if (load.by_engine) state.proxy.copied(address, load.chunk);
    if (!cta.order) return;
    load.reduces ? cta.order->initialise(address, load.chunk)
                 : cta.order->write(agent, clock, landing.issued, address, load.chunk, landing.line);
  });
  arrive_bytes(cta, landing, agent, clock);
}

void issue_load_to(Warp& warp, Cta& target, const ptx::Instruction& instruction, int lane, Landing landing) {
  CtaState& state = state_of(target);
  const BulkLoad& load = landing.load;
  state.barriers.at(load.barrier);
  if (&target == &warp.cta) {
    if (warp.cta.run.options.fenced_initialisations && load.by_engine)
      state.barrier_proxy.check(thread_of(warp, lane), load.barrier, 8, "counted at");
    load.chunks([&](std::uint32_t, std::uint32_t address) {
      target.shared_bytes(address, load.chunk, lane);
      if (load.by_engine) state.proxy.check(thread_of(warp, lane), address, load.chunk, "overwritten");
    });
  }
  AsyncOperation operation;
  operation.kind = AsyncKind::tensor_load;
  operation.owner = thread_of(warp, lane);
  operation.effect = [&target, landing = std::move(landing)] { land(target, landing); };
  issue(target, instruction, std::move(operation));
}

/// What a store has read.
struct Staged {
  std::vector<std::byte> bytes;
  bool is_read = false;
};

void count_sectors(std::uint64_t& sectors, std::uint64_t address, std::size_t bytes) {
  sectors += (address + bytes - 1) / 32 - address / 32 + 1;
}

}  // namespace

void issue_load(Warp& warp, const ptx::Instruction& instruction, int lane, std::uint32_t target,
                std::uint32_t barrier, const ptx::Operand* mask, BulkLoad load) {
  Landing landing{std::move(load), {}, instruction.line};
  if (warp.cta.order) {
    const std::uint32_t thread[] = {thread_of(warp, lane)};
    landing.issued = warp.cta.order->issue(thread);
  }
  if (!mask) {
    Cta& owner = warp.cta.owner_of(target);
    if (&owner != &warp.cta.owner_of(barrier)) throw Fault("a copy to one CTA, counted in another", lane);
    return issue_load_to(warp, owner, instruction, lane, std::move(landing));
  }
  const std::uint64_t ctas = warp.value(*mask, lane);
  for (std::size_t rank = 0; rank < warp.cta.cluster.ctas.size(); ++rank) {
    if ((ctas >> rank & 1) == 0) continue;
    issue_load_to(warp, *warp.cta.cluster.ctas[rank], instruction, lane, landing);
    landing.again = true;
  }
}

void issue_store(Warp& warp, const ptx::Instruction& instruction, int lane, std::size_t bytes, Chunks chunks,
                 std::function<void(const std::vector<std::byte>&)> write) {
  Cta& cta = warp.cta;
  const std::uint32_t thread = thread_of(warp, lane);
  chunks([&](std::uint32_t, std::uint32_t address) {
    cta.shared_bytes(address, kBulkChunk, lane);
    state_of(cta).proxy.check(thread, address, kBulkChunk, "read");
  });
  HappensBefore::Clocks issued;
  std::uint32_t agent = 0;
  if (cta.order) {
    const std::uint32_t threads[] = {thread};
    issued = cta.order->issue(threads);
    agent = cta.order->agent("the stores of thread " + std::to_string(thread));
  }
  auto staged = std::make_shared<Staged>();
  const auto read = [&cta, staged, bytes, chunks = std::move(chunks), issued = std::move(issued), agent,
                     clock = state_of(cta).bulk_groups[thread] + 1, line = instruction.line] {
    if (std::exchange(staged->is_read, true)) return;
    staged->bytes.resize(bytes);
    chunks([&](std::uint32_t offset, std::uint32_t address) {
      std::memcpy(&staged->bytes[offset], cta.shared_bytes(address, kBulkChunk), kBulkChunk);
      if (cta.order) cta.order->read(agent, clock, issued, address, kBulkChunk, line);
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

void put(Run& run, Reduction reduction, MapType type, std::uint64_t address, const void* source,
         std::size_t bytes) {
  run.memory.check(address, bytes);
  auto* target = reinterpret_cast<void*>(address);
  if (reduction == Reduction::none) {
    std::memcpy(target, source, bytes);
  } else {
    reduce_elements(reduction, type, target, source, bytes);
  }
  count_sectors(run.report.global_sectors_written, address, bytes);
}

void get(const Cta& cta, std::uint64_t address, void* target, std::size_t bytes) {
  cta.run.memory.check(address, bytes);
  std::memcpy(target, reinterpret_cast<const void*>(address), bytes);
  count_sectors(cta.run.report.global_sectors_read, address, bytes);
}

std::uint32_t shared_address(const Warp& warp, const ptx::Operand& operand, int lane, std::uint32_t align) {
  const auto address = static_cast<std::uint32_t>(warp.address(operand, lane));
  if (address % align != 0) {
    throw Fault("an asynchronous copy at " +
                    shared_place(warp.cta.run.launch.kernel, offset_of_shared_address(address)) +
                    ", which is not aligned to " + std::to_string(align) + " bytes",
                lane);
  }
  return address;
}

std::uint32_t own_offset(Warp& warp, const ptx::Operand& operand, int lane, std::uint32_t align) {
  const std::uint32_t address = shared_address(warp, operand, lane, align);
  if (&warp.cta.owner_of(address) != &warp.cta) throw Fault("a bulk store out of another CTA", lane);
  return offset_of_shared_address(address);
}

}  // namespace tilescope::gpu::emulator
