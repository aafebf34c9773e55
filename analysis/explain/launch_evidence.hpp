// SPDX-License-Identifier: Apache-2.0
// What a launch says of its program before any byte is compared: grid, registers, shared memory, name.
#pragma once

#include <optional>
#include <string>

#include "analysis/explain/candidate_programs.hpp"
#include "analysis/records/compare/kernel_group.hpp"

namespace tilescope {

/// What a kernel's name states of its tile; a name that states nothing agrees with every tile.
struct NamedTile {
  std::optional<int> block_m, block_n;   // the tile's
  std::optional<int> of_m, of_n;         // an instruction's or a warp group's, of which a tile has several
  std::optional<std::int64_t> head_dim;  // that the kernel was compiled for: the problem's, or more
  bool allows(TileShape tile) const;
};
/// Of FlashAttention-2 and -3 (template arguments), memory-efficient attention and cuDNN.
NamedTile tile_in_name(const std::string& name);

/// What the launch of one kernel says.
class LaunchEvidence {
 public:
  /// @param sm_count of the device; without, a small grid may be that of a persistent kernel
  LaunchEvidence(const KernelGroup& kernel, std::optional<std::int64_t> sm_count);

  /// Why the launch cannot be the candidate's, as half a sentence ("its grid has 512 CTAs, not 1024");
  /// nothing where it can be.
  std::optional<std::string> against(const CandidateProgram& candidate) const;
  /// Whether its name leaves room for the candidate: its direction, its tile, what it is made for.
  bool name_allows(const CandidateProgram& candidate) const { return !name_against(candidate); }
  /// Whether the grid has a CTA a tile: of a persistent kernel it says nothing.
  bool grid_agrees(const CandidateProgram& candidate) const;
  /// How much the launch speaks for a candidate that it allows, as the logarithm of odds.
  double log_odds(const CandidateProgram& candidate) const;
  /// Whether its name says that it is a library's copy, fill, reduction or the like: no attention.
  bool other_work() const { return other_work_; }

 private:
  std::optional<std::string> name_against(const CandidateProgram& candidate) const;
  bool persistent(const CandidateProgram& candidate) const;
  std::optional<std::string> memory_against(const CandidateProgram& candidate) const;

  const KernelGroup& kernel_;
  std::optional<std::int64_t> sm_count_;
  std::int64_t ctas_, threads_;
  NamedTile named_;
  std::string name_;  // in lower case
  // What it says, looked up once, since candidates are many.
  bool other_work_, no_products_, by_copy_engine_, of_older_chip_;
  std::optional<Direction> direction_;
};

}  // namespace tilescope
