// SPDX-License-Identifier: Apache-2.0
// Whether kernels speak against the problem that they are held against, and which number of it disagrees.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "analysis/explain/candidate_parts.hpp"
#include "analysis/explain/explain_record.hpp"
#include "analysis/explain/launch_evidence.hpp"

namespace tilescope {
namespace {

/// A number of the problem in another's place.
struct Change {
  std::string said, instead;  // "causal is no", "yes"
  AttentionProblem problem;
};

/// Lengths by which some kernels would write O and LSE, dQ, or dK and dV, and nothing else: those that most
/// kernels have in common.
std::vector<std::int64_t> lengths_by_writes(const ExplainRecord& record) {
  const AttentionProblem& given = record.problem;
  if (given.seqlen_q != given.seqlen_k) return {};
  const std::int64_t rows = given.batch * given.heads, element = element_bytes(given.dtype);
  const std::int64_t row = given.head_dim * element;
  std::map<std::int64_t, int> votes;
  for (const KernelGroup& kernel : record.kernels) {
    const std::int64_t written =
        metric_of(kernel, "sm_l2_write_bytes").value_or(0) - sum_of(counted_causes(kernel.measured), false);
    for (const std::int64_t bytes : {row + kSumBytes, row, 2 * row}) {
      const std::int64_t seqlen = written / (rows * bytes);
      if (seqlen > 0 && seqlen != given.seqlen_q && seqlen * rows * bytes == written) ++votes[seqlen];
    }
  }
  constexpr std::size_t kTried = 4;
  std::vector<std::int64_t> lengths;
  for (const auto& [seqlen, count] : votes) lengths.push_back(seqlen);
  std::ranges::stable_sort(lengths, [&votes](auto a, auto b) { return votes[a] > votes[b]; });
  lengths.resize(std::min(kTried, lengths.size()));
  return lengths;
}

std::vector<Change> changes_of(const ExplainRecord& record) {
  std::vector<Change> changes;
  const AttentionProblem& given = record.problem;
  const auto change = [&](const std::string& said, const std::string& instead, auto set) {
    AttentionProblem other = given;
    set(other);
    changes.push_back({said, instead, other});
  };
  change(fmt::format("causal is {}", given.causal ? "yes" : "no"), given.causal ? "no" : "yes",
         [](AttentionProblem& other) { other.causal = !other.causal; });
  const auto lengths = fmt::format("seqlen is {}", given.seqlen_q);
  for (const std::int64_t seqlen : lengths_by_writes(record)) {
    change(lengths, std::to_string(seqlen),
           [seqlen](AttentionProblem& other) { other.seqlen_q = other.seqlen_k = seqlen; });
  }
  std::vector<std::int64_t> head_dims = {64, 128};
  for (const KernelGroup& kernel : record.kernels) {
    if (const auto named = tile_in_name(kernel.name).head_dim) head_dims.push_back(*named);
  }
  std::ranges::sort(head_dims);
  head_dims.erase(std::unique(head_dims.begin(), head_dims.end()), head_dims.end());
  for (const std::int64_t head_dim : head_dims) {
    if (head_dim == given.head_dim) continue;
    change(fmt::format("head_dim is {}", given.head_dim), std::to_string(head_dim),
           [head_dim](AttentionProblem& other) { other.head_dim = head_dim; });
  }
  const ElementType type = given.dtype == ElementType::fp32 ? ElementType::fp16 : ElementType::fp32;
  change(fmt::format("dtype is {}", to_string(given.dtype)), std::string(to_string(type)),
         [type](AttentionProblem& other) { other.dtype = type; });
  return changes;
}

bool tiled(const KernelFit& fit) { return fit.best && fit.best->tiled(); }

/// Passes that touch each element once say nothing of masks and lengths apart.
std::int64_t explained_of(const std::vector<KernelFit>& fits) {
  return std::ranges::count_if(
      fits, [](const KernelFit& fit) { return fit.agreement == Agreement::explained && tiled(fit); });
}

/// The change by which most kernels are explained, more than `least`; null where none does.
const Change* best_of(const std::vector<Change>& changes, const ExplainRecord& record, std::int64_t& least) {
  const Change* best = nullptr;
  for (const Change& change : changes) {
    ExplainRecord other = record;
    other.problem = change.problem;
    const std::int64_t fitting = explained_of(explain(other));
    if (fitting > least) best = &change, least = fitting;
  }
  return best;
}

}  // namespace

std::string doubt(const ExplainRecord& record, const std::vector<KernelFit>& fits) {
  std::map<std::int64_t, std::int64_t> votes;
  std::int64_t heads = 0;
  for (const KernelFit& fit : fits) {
    if (fit.other_heads && ++votes[fit.other_heads->heads] > votes[heads]) heads = fit.other_heads->heads;
  }
  const std::int64_t explained = explained_of(fits);
  std::int64_t most = votes[heads];
  const bool attention =
      most > 0 || std::ranges::any_of(fits, tiled) ||
      std::ranges::any_of(fits, [](const KernelFit& fit) { return fit.agreement == Agreement::unexplained; });
  if (!attention || (explained > 0 && explained > most)) return "";
  const std::string fitted =
      fmt::format("{} fits {} of {} kernels", describe(record.problem), explained, fits.size());
  const auto fit = [&most] { return fmt::format("{} {}", most, most == 1 ? "fits" : "fit"); };
  const std::vector<Change> changes = changes_of(record);
  if (const Change* change = best_of(changes, record, most)) {
    return fmt::format("{}; {}, and {} with {}", fitted, change->said, fit(), change->instead);
  }
  if (most == 0) return "";
  return fmt::format("{}; {} with {} heads over the batch, where batch x heads is {}", fitted, fit(), heads,
                     record.problem.batch * record.problem.heads);
}

}  // namespace tilescope
