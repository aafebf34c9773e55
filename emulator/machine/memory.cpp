// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/memory.hpp"

#include <fmt/format.h>

#include <iterator>

#include "emulator/machine/launch.hpp"

namespace tilescope::gpu::emulator {
namespace {

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

void Memory::add(const void* base, std::uint64_t bytes, std::string name, bool uninitialised) {
  by_base_[address_of(base)] = {address_of(base), bytes, std::move(name), uninitialised};
}

void Memory::remove(const void* base) { by_base_.erase(address_of(base)); }

void Memory::free(const void* base) {
  Allocation& allocation = by_base_.at(address_of(base));
  allocation.bytes = 0;
  allocation.name = "memory that was freed";
}

const Memory::Allocation* Memory::find(std::uint64_t address, std::uint64_t bytes) const {
  auto after = by_base_.upper_bound(address);
  if (after == by_base_.begin()) return nullptr;
  const Allocation& allocation = std::prev(after)->second;
  return allocation.holds(address, bytes) ? &allocation : nullptr;
}

void Memory::check(std::uint64_t address, std::uint64_t bytes, int lane) const {
  if (!find(address, bytes))
    throw Fault(fmt::format("{} bytes at {:#x} are not allocated; {}", bytes, address, nearest(address)),
                lane, FindingKind::out_of_bounds);
}

std::string Memory::nearest(std::uint64_t address) const {
  const auto describe = [](const Allocation& allocation) {
    return fmt::format("'{}' of {} bytes at {:#x}", allocation.name, allocation.bytes, allocation.base);
  };
  const auto after = by_base_.upper_bound(address);
  std::string words;
  if (after != by_base_.begin()) {
    const Allocation& before = std::prev(after)->second;
    const std::uint64_t offset = address - before.base;
    words = offset < before.bytes
                ? fmt::format("they begin at byte {} of {}", offset, describe(before))
                : fmt::format("{} bytes beyond the end of {}", offset - before.bytes, describe(before));
  }
  if (after != by_base_.end())
    words += fmt::format("{}{} bytes before {}", words.empty() ? "" : ", ", after->first - address,
                         describe(after->second));
  return words.empty() ? "nothing is allocated" : words;
}

}  // namespace tilescope::gpu::emulator
