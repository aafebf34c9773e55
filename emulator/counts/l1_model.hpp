// SPDX-License-Identifier: Apache-2.0
// A model of L1 for loads that allocate there: least recently used lines of 128 bytes go first, sectors of 32
// bytes are fetched one by one. Stores go through and change nothing. A CTA finds what it loaded itself in
// its share; what it fetches beyond that may be there by its neighbours on the SM, which is looked for when
// all have ended. What hits on a device depends on timing: numbers that rest on this are labelled as
// modelled.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "emulator/machine/launch.hpp"

namespace tilescope::gpu::emulator {

class L1Model {
 public:
  explicit L1Model(std::uint64_t bytes) : most_lines_(bytes / kLineBytes) {}
  /// Whether a sector (its address / 32) is there; it is afterwards.
  bool load(std::uint64_t sector);

 private:
  static constexpr std::uint64_t kLineBytes = 128, kSectorsPerLine = 4;
  struct Line {
    std::uint64_t number = 0;
    std::uint8_t sectors = 0;  // a bit each
  };
  std::uint64_t most_lines_;
  std::list<Line> lines_;  // the most recent first
  std::unordered_map<std::uint64_t, std::list<Line>::iterator> by_number_;
};

/// How an SM is shared.
struct Residency {
  std::uint64_t ctas = 1;      // at once on an SM
  std::uint64_t l1_bytes = 0;  // what shared memory leaves of an SM's 256 KiB
  bool registers_known = false;
  std::uint64_t share() const { return l1_bytes / ctas; }
};

/// By threads, shared memory and, where they are known, registers; no more than the grid gives each SM.
/// Source: CUDA C++ Programming Guide, compute capability 9.0 (limits and the sizes that shared memory
/// takes).
Residency residency_of(const Launch& launch, std::optional<int> registers);

/// What CTAs fetch through L1, kept until it can be said which SM's L1 held it already.
class FetchesOfSms {
 public:
  struct Fetch {
    std::uint64_t sector : 48;
    std::uint64_t site : 16;  // of the instruction, by its number
  };
  using OfCta = std::vector<Fetch>;
  /// @param sm  that a CTA runs on
  void add(std::uint32_t sm, std::uint32_t cta, OfCta fetches);
  /// Of each site, the fetches that find their sector there: CTAs of an SM, as many at once as it holds, take
  /// turns fetch by fetch, and what they leave stays for those that follow.
  std::vector<std::uint64_t> hits(const Residency& residency, std::size_t sites) const;

 private:
  std::map<std::uint32_t, std::map<std::uint32_t, OfCta>> by_sm_;  // CTAs in the grid's order
};

}  // namespace tilescope::gpu::emulator
