// SPDX-License-Identifier: Apache-2.0
// Which tile program explains the bytes that counters saw of an unknown kernel, and what is left over.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/explain/candidate_programs.hpp"
#include "analysis/model/counts/counted_causes.hpp"
#include "analysis/records/compare/kernel_group.hpp"

namespace tilescope {

/// How well a program's bytes agree with the counters, once the named causes are taken off.
enum class Agreement : std::uint8_t {
  explained,    // reads and writes within kExplained
  not_certain,  // they are, but another number of heads does clearly better, or so many falsified counts
                // would be
  reads_only,   // reads are, writes are not, but come within kNear, or the kernel spills
  writes_only,
  unexplained,
  no_attention,  // by its name a copy, a fill, a reduction or the like
};
/// "reads explained", "no attention kernel"
std::string_view to_string(Agreement agreement);
/// Of falsified counts, so many may be explained at most where the true ones are called explained.
inline constexpr double kMostChance = 0.02;
/// "0.3 %", "under 0.1 %"
std::string chance_text(double chance);
/// Of the bytes that were measured, at most so much is left over where a program explains them; 1.0 = 100 %.
inline constexpr double kExplained = 2e-4;
inline constexpr double kNear = 0.5;  // of them: farther off, the program has nothing to do with the side

/// Candidates with the same bytes, to within what counters tell apart.
struct ProgramFit {
  std::string name, convention;
  ReadWriteBytes bytes;
  std::vector<TileShape> tiles;  // empty where the program has none
  bool grid_agrees = false;      // one of them has as many CTAs as were launched
  double posterior = 0;          // among all that leave nothing over, by what the launch says; 0: none does

  /// "128 x any", "64...128 x 64", "128 x (16, 32)": block_m and block_n; "" without tiles.
  std::string tile_text() const;
  /// "forward, K and V by tile"
  std::string name_text() const { return convention.empty() ? name : name + ", " + convention; }
  /// The same, and the tile where it has one.
  std::string text() const { return tiles.empty() ? name_text() : name_text() + ", " + tile_text(); }
};

/// What would explain a kernel better than the problem that was given.
struct OtherHeads {
  std::int64_t heads = 0;  // query heads over the whole batch: bytes do not tell how they are split
  ProgramFit program;
  std::int64_t read_residual_bytes = 0;
  std::int64_t write_residual_bytes = 0;
};

struct KernelFit {
  std::vector<NamedCause> causes;
  std::vector<ProgramFit> programs;  // the best first, the others as good; empty without candidates
  Agreement agreement = Agreement::unexplained;
  double cost = 0;                       // of the best program: the least wins
  std::optional<CandidateProgram> best;  // absent without candidates that the launch and counters allow
  /// The share of falsified counts that would be explained too, where these are: see explained_by_chance.
  std::optional<double> chance;
  std::int64_t asked_again_bytes = 0;  // that L1 did not serve the best program
  /// Measured less causes, these and the best program. [bytes]
  std::int64_t read_residual_bytes = 0;
  std::int64_t write_residual_bytes = 0;
  std::optional<OtherHeads> other_heads;
  std::vector<std::string> hints;  // where the residual could come from, and what would show it
};

/// Leaves out what the launch cannot be (LaunchEvidence), programs that reduce another number of bytes than
/// were counted, and those that must write more than was. Ranks the others by the product of their relative
/// residuals at reads and writes, so that one side that agrees to the byte outweighs another that something
/// unnamed adds to, and by what the launch says; loads that L1 served may be missing.
/// @param sm_count of the device
/// @param names_nearest  whether, where the launch rules out all candidates, a hint names the nearest of them
/// @throws BadInput when `kernel` lacks sm_l2_read_bytes or sm_l2_write_bytes
KernelFit fit_kernel(const KernelGroup& kernel, std::span<const CandidateProgram> candidates,
                     std::optional<std::int64_t> sm_count = std::nullopt, bool names_nearest = true);

/// The number of query heads that explains a kernel better than the given one, if some does.
/// Every byte of a problem is proportional to its heads over the batch, so that each candidate says with how
/// many it would have moved what was measured. Only tiled programs are asked: a copy fits any number. Numbers
/// from an eighth to eight times the given one, of the same grouping.
/// @param candidates of `problem`; none of a problem with key lengths is scaled, whose entries differ
/// @param given      what fit_kernel says of them
std::optional<OtherHeads> heads_that_fit_better(const KernelGroup& kernel, const AttentionProblem& problem,
                                                std::span<const CandidateProgram> candidates,
                                                const KernelFit& given,
                                                std::optional<std::int64_t> sm_count = std::nullopt);

}  // namespace tilescope
