// SPDX-License-Identifier: Apache-2.0
// What is launched, how it is executed, and what came of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "emulator/machine/findings.hpp"
#include "emulator/ptx/module.hpp"

namespace tilescope::gpu::emulator {

struct Extent {
  unsigned x = 1, y = 1, z = 1;
  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
  bool operator==(const Extent&) const = default;
};

struct Launch {
  const ptx::Kernel* kernel = nullptr;
  Extent grid, block, cluster;
  std::uint32_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;  // laid out as Kernel::parameters say
};

class Observer;

struct Options {
  std::uint64_t seed = 1;                 // of all that is drawn: the same seed gives the same run
  int resident_clusters = 4;              // that go on side by side
  std::uint64_t step_limit = 1ull << 36;  // warp instructions of a launch
  bool races = false;                     // look for races by happens-before
  bool fenced_initialisations = true;     // a copy on an mbarrier that no fence followed is an error
  bool adversary = true;  // asynchronous operations take effect as late, and as early, as they may
  int threads = 1;  // of this machine, at most, where CTAs know nothing of each other; no result differs
  double most_seconds = 0;  // a launch that will take longer is broken off as soon as that shows; 0: none
  Observer* observer = nullptr;  // told of accesses
};

/// Two accesses to shared memory that nothing orders, or a read of what nobody wrote; lines of the PTX.
struct Race {
  std::string text;
  int first_line = 0, second_line = 0;  // of a read without a write both are its own
  bool operator==(const Race&) const = default;
};

struct Report {
  std::map<std::string, std::uint64_t> instructions;  // by opcode, counted once a warp
  std::uint64_t steps = 0;                            // their sum
  std::uint64_t asking_steps = 0;                     // of these, in loops that ask again: a matter of timing
  std::uint64_t global_sectors_read = 0, global_sectors_written = 0;  // of 32 bytes, before any cache
  std::uint64_t shared_wavefronts = 0;
  std::vector<std::uint64_t> executed;       // by instruction of the kernel
  std::vector<Race> races, unwritten_reads;  // where they were looked for
  std::string printed;                       // by printf, its first MiB
};

/// What a handler throws; the machine adds kernel, CTA, warp, line and text and throws a DeviceError.
struct Fault : std::runtime_error {
  explicit Fault(const std::string& what, int lane = -1, FindingKind kind = FindingKind::fault)
      : std::runtime_error(what), lane(lane), kind(kind) {}
  int lane;  // -1: the whole warp
  FindingKind kind;
  int line = 0;  // of the PTX, where it is another than that of the instruction under way
};

/// An error of the kernel, with its place.
struct DeviceError : std::runtime_error {
  explicit DeviceError(const std::string& what, FindingKind kind = FindingKind::fault,
                       std::vector<int> lines = {})
      : std::runtime_error(what), kind(kind), lines(std::move(lines)) {}
  FindingKind kind;
  std::vector<int> lines;   // of the PTX
  std::vector<Race> races;  // that were found before
};

/// A launch that would take longer than Options::most_seconds.
struct TakesTooLong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace tilescope::gpu::emulator
