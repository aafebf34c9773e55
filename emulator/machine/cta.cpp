// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/cta.hpp"

#include <fmt/format.h>

#include "emulator/machine/address_space.hpp"
#include "emulator/machine/shared_places.hpp"
#include "emulator/machine/warp.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint64_t kMostHeapBytes = 8 << 20;  // cudaLimitMallocHeapSize
constexpr std::uint64_t kHeapAlign = 16, kHeapGuard = 64;

}  // namespace

std::uint64_t DeviceHeap::allocate(Memory& memory, std::uint64_t bytes) {
  if (bytes == 0 || bytes > kMostHeapBytes - used_) return 0;
  // What was not written reads as NaN, and nothing else lies right beside it.
  std::vector<std::byte> storage(bytes + 2 * kHeapGuard, std::byte{0xff});
  const auto begin = reinterpret_cast<std::uintptr_t>(storage.data()) + kHeapGuard;
  const std::uint64_t address = (begin + kHeapAlign - 1) / kHeapAlign * kHeapAlign;
  memory.add(reinterpret_cast<const void*>(address), bytes, "memory of malloc");
  by_address_.emplace(address, std::move(storage));
  used_ += bytes;
  return address;
}

bool DeviceHeap::free(Memory& memory, std::uint64_t address) {
  if (address == 0) return true;
  const auto found = by_address_.find(address);
  if (found == by_address_.end()) return false;
  used_ -= found->second.size() - 2 * kHeapGuard;
  memory.free(reinterpret_cast<const void*>(address));
  by_address_.erase(found);
  return true;
}

Cta::Cta(Run& run, Cluster& cluster, Extent index, unsigned rank)
    : run(run), cluster(cluster), index(index), rank(rank) {}
Cta::~Cta() = default;

Cta& Cta::owner_of(std::uint32_t shared_address) {
  const std::uint32_t owner = shared_address >> kRankShift;
  if (owner == 0) return *this;
  if (owner > cluster.ctas.size())
    throw Fault(fmt::format("a shared address names rank {} of a cluster of {} CTAs", owner - 1,
                            cluster.ctas.size()));
  return *cluster.ctas[owner - 1];
}

std::byte* Cta::shared_bytes(std::uint32_t address, std::uint32_t bytes, int lane) {
  const std::uint32_t offset = offset_of_shared_address(address);
  if (offset % bytes != 0)
    throw Fault(fmt::format("{} is not aligned to {} bytes", shared_place(run.launch.kernel, offset), bytes),
                lane);
  return shared_range(address, bytes, lane);
}

std::byte* Cta::shared_range(std::uint32_t address, std::uint32_t bytes, int lane) {
  const std::uint32_t offset = offset_of_shared_address(address);
  Cta& owner = owner_of(address);
  if (offset < ptx::kSharedBegin || offset > owner.shared_end || bytes > owner.shared_end - offset)
    throw Fault(fmt::format("{} bytes at byte {} of shared memory, of which the CTA has {}", bytes,
                            std::int64_t{offset} - std::int64_t{ptx::kSharedBegin},
                            owner.shared_end - ptx::kSharedBegin),
                lane, FindingKind::out_of_bounds);
  return owner.shared.data() + offset;
}

std::byte* Cta::generic_bytes(std::uint64_t address, std::uint32_t bytes, int lane) {
  if (in_window(kSharedWindow, address))
    return shared_range(static_cast<std::uint32_t>(address - kSharedWindow), bytes, lane);
  if (in_window(kParameterWindow, address)) {
    const std::uint64_t offset = address - kParameterWindow, size = run.launch.kernel->parameter_bytes;
    if (offset > size || bytes > size - offset)
      throw Fault(fmt::format("{} bytes at {} of {} bytes of parameters", bytes, offset, size), lane);
    return run.parameter_base + offset;
  }
  run.memory.check(address, bytes, lane);
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

}  // namespace tilescope::gpu::emulator
