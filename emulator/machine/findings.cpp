// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/findings.hpp"

namespace tilescope::gpu::emulator {

std::string to_string(FindingKind kind) {
  switch (kind) {
    case FindingKind::out_of_bounds:
      return "out of bounds";
    case FindingKind::hang:
      return "hang";
    case FindingKind::fault:
      return "fault";
    case FindingKind::race:
      return "race";
    case FindingKind::uninitialised:
      return "uninitialised";
    case FindingKind::uncoalesced:
      return "uncoalesced";
    case FindingKind::bank_conflicts:
      return "bank conflicts";
    case FindingKind::spills:
      return "spills";
  }
  return "";
}

std::string SourceLine::text() const {
  if (line == 0) return "PTX line " + std::to_string(ptx_line);
  return file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(line);
}

}  // namespace tilescope::gpu::emulator
