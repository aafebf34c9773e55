// SPDX-License-Identifier: Apache-2.0
// A CTA and its cluster: shared memory, barriers, warps, operations under way.
#pragma once

#include <any>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "emulator/machine/async_queue.hpp"
#include "emulator/machine/launch.hpp"
#include "emulator/machine/memory.hpp"

namespace tilescope::gpu::emulator {

class CtaOrder;
class HappensBefore;
class Warp;
struct Cta;

inline constexpr std::uint32_t kMultiprocessors = 132, kMaxWarps = 64;  // of an H200, and of one of its SMs

/// bar.sync, bar.arrive and bar.red on one of the 16 named barriers.
struct NamedBarrier {
  struct Sums {  // of bar.red
    bool any = false, all = true;
    std::uint32_t count = 0;
  };
  std::uint32_t expected_threads = 0;  // 0: all of the CTA that are not done
  std::uint32_t arrived_threads = 0;
  std::uint64_t phase = 0;  // how often it was completed
  Sums now, last;
};

struct Cluster {
  std::vector<std::unique_ptr<Cta>> ctas;  // by rank
  std::any extension;                      // state of sm90/
  std::shared_ptr<HappensBefore> account;  // where races are looked for
};

/// What kernels allocate by malloc. It lives as long as the launch. Each part of a launch that runs on its
/// own has 8 MiB, as a device has unless its host asks for more.
class DeviceHeap {
 public:
  /// The address; 0 where there is no room.
  std::uint64_t allocate(Memory& memory, std::uint64_t bytes);
  /// @returns false where nothing was allocated at the address. 0 is nothing, and may be freed.
  bool free(Memory& memory, std::uint64_t address);

 private:
  std::map<std::uint64_t, std::vector<std::byte>> by_address_;
  std::uint64_t used_ = 0;
};

/// What the whole of a launch shares.
struct Run {
  const Launch& launch;
  Memory& memory;
  const Options& options;
  std::vector<std::byte> parameters;  // a copy, aligned as the kernel asks
  std::byte* parameter_base = nullptr;
  Random random;
  Report report;
  std::array<std::uint32_t, 16> workspace{};  // of a cooperative grid
  DeviceHeap heap;

  std::uint64_t workspace_address() const { return reinterpret_cast<std::uintptr_t>(workspace.data()); }

  /// What %clock and %globaltimer read: warp instructions since the launch began.
  std::uint64_t clock() const { return report.steps; }
};

struct Cta {
  Cta(Run& run, Cluster& cluster, Extent index, unsigned rank);
  ~Cta();
  Cta(const Cta&) = delete;
  Cta& operator=(const Cta&) = delete;

  Run& run;
  Cluster& cluster;
  Extent index;                   // %ctaid
  std::uint32_t sm = 0;           // %smid
  unsigned rank = 0;              // in the cluster
  std::uint32_t shared_end = 0;   // of the offsets in use; they begin at ptx::kSharedBegin
  std::vector<std::byte> shared;  // by offset, as threads see it
  std::vector<std::byte> local;   // of all threads, one after the other
  std::vector<std::unique_ptr<Warp>> warps;
  std::array<NamedBarrier, 16> barriers;
  AsyncQueue async;
  const Memory::Allocation* recent = nullptr;  // the allocation that was used last
  /// Called after a store of ordinary instructions to shared memory (the generic proxy), once for each lane.
  void (*on_shared_store)(Warp& writer, Cta& owner, int lane, std::uint32_t offset,
                          std::uint32_t bytes) = nullptr;
  std::any extension;               // state of sm90/
  std::any observed;                // state of the observer
  std::shared_ptr<CtaOrder> order;  // where races are looked for

  /// Host memory of a 32-bit shared address, that of another CTA of the cluster where it names one. Throws a
  /// Fault beyond its end, and where `bytes` does not divide the address.
  std::byte* shared_bytes(std::uint32_t address, std::uint32_t bytes, int lane = -1);
  /// The same for a range without alignment.
  std::byte* shared_range(std::uint32_t address, std::uint32_t bytes, int lane = -1);
  /// The CTA whose shared memory an address is in.
  Cta& owner_of(std::uint32_t shared_address);
  /// Host memory of a generic address: shared, parameter, or global.
  std::byte* generic_bytes(std::uint64_t address, std::uint32_t bytes, int lane = -1);
};

}  // namespace tilescope::gpu::emulator
