// SPDX-License-Identifier: Apache-2.0
// What a kernel does wrong, or at a needless price, each with the lines of its source.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/ptx/module.hpp"

namespace tilescope::gpu::emulator {

enum class FindingKind : std::uint8_t {
  out_of_bounds,   // an access beyond its buffer: the run ended there
  hang,            // every warp waits for another, or there was no end: likewise
  fault,           // anything else that a device would not do or PTX does not define: likewise
  race,            // two accesses that nothing orders
  uninitialised,   // a read of what nobody wrote
  uncoalesced,     // more sectors than the lanes' bytes need
  bank_conflicts,  // more wavefronts than the lanes' words need
  spills,          // registers that ptxas keeps in local memory
};
std::string to_string(FindingKind kind);

/// Whether results may be wrong, rather than slow.
constexpr bool is_error(FindingKind kind) { return kind <= FindingKind::race; }

/// A line of a source, "" and 0 where the PTX says none; and of the PTX itself.
struct SourceLine {
  std::string file;
  int line = 0;
  int ptx_line = 0;
  bool operator==(const SourceLine&) const = default;

  /// "softmax.py:12", with the last part of the path; "PTX line 80" where there is no source.
  std::string text() const;
};

struct Finding {
  FindingKind kind{};
  std::vector<SourceLine> lines;  // one or, of a race, two; none where nobody knows
  std::string text;               // a sentence or a few
};

}  // namespace tilescope::gpu::emulator
