// SPDX-License-Identifier: Apache-2.0
#include "emulator/sm90/mbarrier.hpp"

#include <string>

#include "emulator/machine/launch.hpp"
#include "emulator/machine/shared_places.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::int64_t kLimit = (1 << 20) - 1;  // of arrivals, and of bytes either way

}  // namespace

Mbarrier::Mbarrier(std::uint32_t arrivals) : arrivals_(arrivals), pending_(arrivals) {
  if (arrivals < 1 || arrivals > kLimit) {
    throw Fault("an mbarrier for " + std::to_string(arrivals) + " arrivals");
  }
}

void Mbarrier::arrive(std::uint32_t count) {
  if (count < 1 || count > pending_) {
    throw Fault("more arrivals at an mbarrier than the " + std::to_string(arrivals_) + " of its phase");
  }
  pending_ -= count;
  end_phase_if_complete();
}

void Mbarrier::drop(std::uint32_t count) {
  if (count > pending_) throw Fault("more arrivals at an mbarrier are dropped than its phase awaits");
  arrivals_ -= count;
}

void Mbarrier::expect_bytes(std::uint32_t bytes) { count_bytes(bytes); }

void Mbarrier::complete_bytes(std::uint32_t bytes) {
  count_bytes(-static_cast<std::int64_t>(bytes));
  end_phase_if_complete();
}

void Mbarrier::count_bytes(std::int64_t change) {
  const std::int64_t bytes = bytes_ + change;
  if (bytes < -kLimit || bytes > kLimit) {
    throw Fault("an mbarrier awaits " + std::to_string(bytes) + " bytes, beyond 2^20 - 1");
  }
  bytes_ = static_cast<std::int32_t>(bytes);
}

void Mbarrier::end_phase_if_complete() {
  if (pending_ != 0 || bytes_ != 0) return;
  ++phase_;
  pending_ = arrivals_;
}

std::string Mbarriers::named(std::uint32_t address) const {
  return "the mbarrier at " + shared_place(kernel_, address);
}

void Mbarriers::init(std::uint32_t address, std::uint32_t arrivals) {
  if (address % 8 != 0) throw Fault(named(address) + " is not aligned to 8 bytes");
  if (!barriers_.try_emplace(address, arrivals).second) {
    throw Fault(named(address) + " is initialised while it lives");
  }
}

void Mbarriers::invalidate(std::uint32_t address) {
  at(address);
  barriers_.erase(address);
}

Mbarrier& Mbarriers::at(std::uint32_t address) {
  const auto found = barriers_.find(address);
  if (found == barriers_.end()) throw Fault(named(address) + " was not initialised");
  return found->second;
}

}  // namespace tilescope::gpu::emulator
