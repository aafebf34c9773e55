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
  std::optional<ReadWriteBytes> must = std::nullopt;  // what every kernel must move, where somebody said it
  std::optional<std::string> program = std::nullopt;  // a tile program as a text, see parse_program_text
  std::vector<KernelGroup> kernels;
  bool operator==(const ExplainRecord&) const = default;
};

/// Which launches of a record are to be explained.
struct KernelChoice {
  std::string filter;  // a regular expression that the name contains a match of; empty: all
  std::int64_t skip = 0;
  std::optional<std::int64_t> count = std::nullopt;  // at most so many
};

/// What is known of the kernels beside their record.
struct ExplainInput {
  AttentionProblem problem;
  std::vector<Direction> directions;
  std::optional<ReadWriteBytes> must = std::nullopt;
  std::optional<std::string> program = std::nullopt;
};

/// The record of `argv`, which explains the chosen kernels by `problem`.
/// @param source what error messages call `kernels`
/// @throws BadInput where the choice is damaged or leaves none
ExplainRecord explain_record(std::vector<std::string> argv, const std::string& source,
                             const KernelRecord& kernels, const KernelChoice& choice, ExplainInput input);

/// The kernels in a record of any kind that has counters of kernels: `profile -- COMMAND`'s, Nsight Compute's
/// table (`ncu --csv --page raw`), and `profile --kernel`'s, of which each run is a record by itself.
struct KernelsOfProblem {
  KernelRecord kernels;
  std::optional<AttentionProblem> problem;  // that a run's record names
};
/// @param source what error messages call the text @throws BadInput where it is none of them, or damaged
std::vector<KernelsOfProblem> read_kernels(const std::string& source, const std::string& text);

/// One fit a kernel. @throws BadInput as candidate_programs and fit_kernel
std::vector<KernelFit> explain(const ExplainRecord& record);

/// What of the problem the kernels speak against, as a sentence, where they do: another number of heads, or a
/// number that makes more of them explained in the place of the problem's. Empty where they speak for it.
/// @param fits what explain says of the record
std::string doubt(const ExplainRecord& record, const std::vector<KernelFit>& fits);

/// Other numbers of key/value heads by which the same kernels are explained, with no more left over: where K
/// and V are loaded, dK and dV summed by query head, bytes do not tell them apart.
/// @param fits what explain says of the record
std::vector<std::int64_t> heads_kv_as_good(const ExplainRecord& record, const std::vector<KernelFit>& fits);

nlohmann::ordered_json explain_record_schema();
/// @throws BadInput as explain
std::string to_json_text(const ExplainRecord& record);
/// @param source what error messages call the text, usually its path
/// @throws BadInput naming the source on damaged JSON or another schema
ExplainRecord parse_explain_record(const std::string& source, std::string_view text);

}  // namespace tilescope
