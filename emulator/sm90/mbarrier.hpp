// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count arrivals and bytes. Their state stands beside shared memory, so that
// what PTX leaves undefined is found: use before the initialisation, an initialisation over a living barrier,
// counts beyond their limits. Source: PTX ISA, "Parallel Synchronization and Communication: mbarrier".
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "emulator/ptx/module.hpp"

namespace tilescope::gpu::emulator {

class Mbarrier {
 public:
  explicit Mbarrier(std::uint32_t arrivals);

  /// @throws Fault: more arrivals than the phase has; bytes beyond +-(2^20 - 1)
  void arrive(std::uint32_t count = 1);
  /// One more arrival in this phase.
  void expect_arrival() { ++pending_; }
  /// So many fewer arrivals in the phases after this one.
  void drop(std::uint32_t count);
  void expect_bytes(std::uint32_t bytes);
  void complete_bytes(std::uint32_t bytes);

  /// Whether the phase of that parity, the current one or the one before, is over.
  bool is_over(std::uint32_t parity) const { return (phase_ & 1) != (parity & 1); }
  std::uint32_t phase() const { return phase_; }  // how many are over

 private:
  void count_bytes(std::int64_t change);
  void end_phase_if_complete();

  std::uint32_t arrivals_, pending_;
  std::int32_t bytes_ = 0;
  std::uint32_t phase_ = 0;
};

/// Those of a CTA, by their addresses in its shared memory. Errors name the place.
class Mbarriers {
 public:
  /// @param kernel  whose variables are named; may be null
  explicit Mbarriers(const ptx::Kernel* kernel = nullptr) : kernel_(kernel) {}
  void init(std::uint32_t address, std::uint32_t arrivals);
  void invalidate(std::uint32_t address);
  Mbarrier& at(std::uint32_t address);
  const std::unordered_map<std::uint32_t, Mbarrier>& all() const { return barriers_; }
  /// "the mbarrier at byte 0 of shared memory (full)"
  std::string named(std::uint32_t address) const;

 private:
  const ptx::Kernel* kernel_;
  std::unordered_map<std::uint32_t, Mbarrier> barriers_;
};

}  // namespace tilescope::gpu::emulator
