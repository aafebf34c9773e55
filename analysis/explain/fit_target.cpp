// SPDX-License-Identifier: Apache-2.0
#include "analysis/explain/fit_target.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace tilescope {
namespace {

std::int64_t required_metric(const KernelGroup& kernel, const char* name) {
  const auto value = metric_of(kernel, name);
  if (!value) {
    throw BadInput(
        "kernel", kernel.name,
        fmt::format(
            "must have {} in the record: `tilescope profile --metrics traffic,causes --json "
            "FILE -- COMMAND` counts it, and `ncu --metrics "
            "l1tex__m_xbar2l1tex_read_bytes.sum,lts__t_sectors_srcunit_tex_op_write.sum,"
            "lts__t_sectors_srcunit_tex_op_red.sum,lts__t_sectors_srcunit_tex_op_atom.sum` what it is "
            "made from",
            name));
  }
  return *value;
}

/// A side without bytes is judged by a thousandth of the other.
double scale_of(std::int64_t side, std::int64_t other) {
  constexpr double kLeast = 1e-3;
  return std::max({1.0, kLeast * static_cast<double>(side + other), static_cast<double>(side)});
}

FitTarget target_of(std::int64_t read, std::int64_t written, const std::vector<NamedCause>& causes,
                    std::optional<std::int64_t> l1_hit_bytes, bool hits_may_miss = true) {
  return {{read - sum_of(causes, true), written - sum_of(causes, false)},
          scale_of(read, written),
          scale_of(written, read),
          l1_hit_bytes,
          hits_may_miss};
}

}  // namespace

FitTarget fit_target(const KernelGroup& kernel, const std::vector<NamedCause>& causes) {
  const std::int64_t read = required_metric(kernel, "sm_l2_read_bytes");
  const std::int64_t written = required_metric(kernel, "sm_l2_write_bytes");
  return target_of(read, written, causes, metric_of(kernel, "l1_load_hit_bytes"));
}

bool counters_allow(const CandidateProgram& candidate, const KernelGroup& kernel, const FitTarget& target) {
  const double excess = static_cast<double>(candidate.bytes.write_bytes - target.bytes.write_bytes);
  if (excess > kExplained * target.write_scale) return false;
  if (const auto reduced = metric_of(kernel, "reduction_bytes")) {
    const double off = std::abs(static_cast<double>(*reduced - candidate.reduce_bytes));
    return off <= 0.01 * static_cast<double>(std::max(*reduced, candidate.reduce_bytes));
  }
  const auto sectors = metric_of(kernel, "l2_reduction_sectors");
  return !sectors || (*sectors > 0) == (candidate.reduce_bytes > 0);
}

double explained_by_chance(const KernelGroup& kernel, const FitTarget& target,
                           const std::vector<const CandidateProgram*>& possible,
                           const CandidateProgram& best) {
  constexpr int kDraws = 4000;
  constexpr unsigned kSeed = 1;
  const std::vector<NamedCause> causes = counted_causes(kernel.measured);
  const std::int64_t read = required_metric(kernel, "sm_l2_read_bytes");
  const std::int64_t written = required_metric(kernel, "sm_l2_write_bytes");
  FitTarget without_hits = target;
  without_hits.hits_may_miss = false;
  const bool needs_hits = !without_hits.explained_by(best);
  double most = 0;
  for (const bool of_reads : {true, false}) {
    std::mt19937_64 random(kSeed);
    std::uniform_real_distribution<double> exponent(-1, 1);
    int explained = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      const double factor = std::exp2(exponent(random));
      const auto times = [factor](std::int64_t bytes) {
        return std::llround(factor * static_cast<double>(bytes));
      };
      const FitTarget false_count =
          target_of(of_reads ? times(read) : read, of_reads ? written : times(written), causes,
                    target.l1_hit_bytes, needs_hits);
      explained += std::ranges::any_of(
          possible, [&](const CandidateProgram* candidate) { return false_count.explained_by(*candidate); });
    }
    const bool has_side = (of_reads ? read : written) > 0;
    if (has_side) most = std::max(most, static_cast<double>(explained) / kDraws);
  }
  return most;
}

}  // namespace tilescope
