// SPDX-License-Identifier: Apache-2.0
// Whether kernels speak against the problem that they are held against, and which number of it disagrees.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/explain/explain_record.hpp"
#include "analysis/explain/launch_evidence.hpp"

namespace tilescope {
namespace {

/// A number of the problem in another's place.
struct Change {
  std::string said, instead;  // "causal is no", "yes"
  AttentionProblem problem;
};

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
  for (const std::int64_t seqlen : {2 * given.seqlen_q, given.seqlen_q / 2}) {
    if (seqlen < 1 || given.seqlen_q != given.seqlen_k) continue;
    change(lengths, std::to_string(seqlen),
           [seqlen](AttentionProblem& other) { other.seqlen_q = other.seqlen_k = seqlen; });
  }
  std::vector<std::int64_t> head_dims = {64, 128};
  for (const KernelGroup& kernel : record.kernels) {
    if (const auto named = tile_in_name(kernel.name).head_dim) head_dims.push_back(*named);
  }
  std::sort(head_dims.begin(), head_dims.end());
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

std::int64_t explained_of(const std::vector<KernelFit>& fits) {
  return std::count_if(fits.begin(), fits.end(),
                       [](const KernelFit& fit) { return fit.agreement == Agreement::explained; });
}

}  // namespace

std::string doubt(const ExplainRecord& record, const std::vector<KernelFit>& fits) {
  std::map<std::int64_t, std::int64_t> votes;
  std::int64_t heads = 0;
  for (const KernelFit& fit : fits) {
    if (fit.other_heads && ++votes[fit.other_heads->heads] > votes[heads]) heads = fit.other_heads->heads;
  }
  const std::int64_t explained = explained_of(fits), most = votes[heads];
  const std::string of = fmt::format("of {} kernels", fits.size());
  if (most > 0 && most >= explained) {
    return fmt::format("{} fits {} {}; {} fit with {} heads over the batch, where batch x heads is {}",
                       describe(record.problem), explained, of, most, heads,
                       record.problem.batch * record.problem.heads);
  }
  const bool attention = std::any_of(fits.begin(), fits.end(), [](const KernelFit& fit) {
    return fit.agreement != Agreement::no_attention;
  });
  if (explained > 0 || !attention) return "";
  for (const Change& change : changes_of(record)) {
    ExplainRecord other = record;
    other.problem = change.problem;
    const std::int64_t fitting = explained_of(explain(other));
    if (fitting > 0) {
      return fmt::format("{} fits no kernel {}; {}, and {} of them fit with {}", describe(record.problem), of,
                         change.said, fitting, change.instead);
    }
  }
  return "";
}

}  // namespace tilescope
