// SPDX-License-Identifier: Apache-2.0
// Somebody's kernels held against a problem, schema "tilescope.explain/1": what was measured of them and, for
// other readers, which tile programs explain it. This program works the explanation out again from the rest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/explain/program_fit.hpp"
#include "analysis/records/run_record.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope {

inline constexpr std::string_view kExplainSchema = "tilescope.explain/1";

struct ExplainRecord {
  std::vector<std::string> argv;
  GitState git;
  std::string when;                          // the kernels were measured
  std::vector<std::string> command;          // of tilescope, that measured them
  std::vector<CollectionFacts> collections;  // one for each kind of device
  AttentionProblem problem;
  std::vector<Direction> directions;
  std::vector<KernelGroup> kernels;
  bool operator==(const ExplainRecord&) const = default;
};

/// Which launches of a record are to be explained.
struct KernelChoice {
  std::string filter;  // a regular expression that the name contains a match of; empty: all
  std::int64_t skip = 0;
  std::optional<std::int64_t> count = std::nullopt;  // at most so many
};

/// The record of `argv`, which explains the chosen kernels by `problem`.
/// @param source what error messages call `kernels`
/// @throws BadInput where the choice is damaged or leaves none
ExplainRecord explain_record(std::vector<std::string> argv, const std::string& source,
                             const KernelRecord& kernels, const KernelChoice& choice,
                             const AttentionProblem& problem, std::vector<Direction> directions);

/// One fit a kernel. @throws BadInput as candidate_programs and fit_kernel
std::vector<KernelFit> explain(const ExplainRecord& record);

/// Other numbers of key/value heads by which the same kernels are explained, with no more left over: where K
/// and V are loaded, dK and dV summed by query head, bytes do not tell them apart.
/// @param fits what explain says of the record
std::vector<std::int64_t> heads_kv_as_good(const ExplainRecord& record, const std::vector<KernelFit>& fits);

/// @throws BadInput as explain
std::string to_json_text(const ExplainRecord& record);
/// @param source what error messages call the text, usually its path
/// @throws BadInput naming the source on damaged JSON or another schema
ExplainRecord parse_explain_record(const std::string& source, std::string_view text);

}  // namespace tilescope
