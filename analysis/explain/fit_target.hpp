// SPDX-License-Identifier: Apache-2.0
// The bytes that a program must account for: a kernel's counters less the causes that have counters of their
// own, and by what measure something is left over.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "analysis/explain/program_fit.hpp"

namespace tilescope {

/// What counters of one kernel repeat to; candidates that lie closer together are equally good.
inline constexpr double kNoise = 5e-5;
/// What L1 serves is counted in another run than what is read, and the order of CTAs is another there: the
/// part of its hits by which they differ; and of what it has all but always, the part that it may have lost.
inline constexpr double kHitNoise = 0.1, kLostByL1 = 1e-3;

/// What is left of the counters when the causes are taken off, and the yardsticks of residuals.
struct FitTarget {
  ReadWriteBytes bytes;
  double read_scale = 1, write_scale = 1;
  std::optional<std::int64_t> l1_hit_bytes = std::nullopt;  // absent where they were not counted
  bool hits_may_miss = true;  // what L1 served may be missing from the reads of any program

  /// What the program is expected to read: of what is asked for again, nothing, or what L1 did not serve;
  /// what comes nearest between them.
  std::int64_t expected_reads(const CandidateProgram& candidate) const {
    const std::int64_t once = candidate.bytes.read_bytes;
    if (candidate.asked_bytes == 0) return once;
    const std::int64_t missed = l1_hit_bytes ? candidate.asked_bytes - *l1_hit_bytes : once;
    const std::int64_t noise = std::llround(kLostByL1 * static_cast<double>(candidate.asked_bytes - once));
    return std::clamp(bytes.read_bytes, std::min(once, missed), std::max(once, missed + noise));
  }
  /// Whether the program loads more than was read, and L1 served as much of what does not go around it.
  bool short_by_hits(const CandidateProgram& candidate) const {
    const std::int64_t missing = candidate.bytes.read_bytes - bytes.read_bytes;
    const auto hits = std::llround((1 + kHitNoise) * static_cast<double>(l1_hit_bytes.value_or(0)));
    return hits_may_miss && candidate.asked_bytes == 0 && missing > 0 && missing <= hits &&
           missing <= candidate.through_l1.value_or(missing);
  }
  double read_error(const CandidateProgram& candidate) const {
    const double error =
        std::abs(static_cast<double>(bytes.read_bytes - expected_reads(candidate))) / read_scale;
    return short_by_hits(candidate) ? std::min(error, kExplained) : error;
  }
  double write_error(const CandidateProgram& candidate) const {
    return std::abs(static_cast<double>(bytes.write_bytes - candidate.bytes.write_bytes)) / write_scale;
  }
  bool explained_by(const CandidateProgram& candidate) const {
    return read_error(candidate) <= kExplained && write_error(candidate) <= kExplained;
  }
};

/// @throws BadInput when `kernel` lacks sm_l2_read_bytes or sm_l2_write_bytes
FitTarget fit_target(const KernelGroup& kernel, const std::vector<NamedCause>& causes);

/// Whether reductions and writes allow the candidate.
bool counters_allow(const CandidateProgram& candidate, const KernelGroup& kernel, const FitTarget& target);

/// The share of falsified counts that some candidate would explain: reads, and then writes, times a factor
/// drawn from 0.5 ... 2 (its logarithm evenly, by a fixed seed), the larger share of the two. A fit without
/// L1's help is asked for one without it.
/// @param possible the candidates that the launch allows, `best` among them
double explained_by_chance(const KernelGroup& kernel, const FitTarget& target,
                           const std::vector<const CandidateProgram*>& possible,
                           const CandidateProgram& best);

}  // namespace tilescope
