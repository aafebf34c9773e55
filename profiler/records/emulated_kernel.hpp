// SPDX-License-Identifier: Apache-2.0
// What an emulated device says of a launch beyond a profiler's metrics: bytes by line of the source, and what
// the kernel does wrong there. Part of a KernelMeasurement.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tilescope {

/// A line that touches memory. Bytes cross between SMs and L2.
struct EmulatedLine {
  std::string file;       // "" where the PTX says none
  std::int64_t line = 0;  // of the file, else of the PTX
  std::string text;       // of the line, where it could be read, else of an instruction
  std::int64_t instructions = 0, requests = 0, asked_bytes = 0, sectors = 0, least_sectors = 0;
  std::int64_t read_bytes = 0, write_bytes = 0, least_write_bytes = 0;
  std::int64_t l1_hit_bytes = 0;         // modelled
  std::int64_t beyond_tensor_bytes = 0;  // part of read_bytes
  std::int64_t shared_requests = 0, wavefronts = 0, least_wavefronts = 0;
  bool operator==(const EmulatedLine&) const = default;

  std::int64_t excess_bytes() const { return (sectors - least_sectors) * 32; }
};

struct EmulatedFinding {
  std::string kind;  // "out of bounds", "race", "uncoalesced", ...
  bool is_error = false;
  std::vector<std::string> places;  // "kernel.cu:12"
  std::string text;
  bool operator==(const EmulatedFinding&) const = default;
};

struct EmulatedKernel {
  bool completed = false;
  std::optional<bool> right;                               // against a reference, where there was one
  std::int64_t must_read_bytes = 0, must_write_bytes = 0;  // different sectors
  std::int64_t least_read_bytes = 0;                       // of sm_l2_read_bytes, if L1 keeps all it may
  std::int64_t least_write_bytes = 0;                      // of sm_l2_write_bytes, if L1 merges all it may
  std::int64_t constant_bytes = 0;
  double seconds = 0;              // of the emulation, on this machine
  std::vector<std::string> notes;  // what of the numbers is modelled
  std::vector<EmulatedLine> lines;
  std::vector<EmulatedFinding> findings;
  bool operator==(const EmulatedKernel&) const = default;
};

}  // namespace tilescope
