// SPDX-License-Identifier: Apache-2.0
#include "analysis/explain/explain_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>

#include "analysis/explain/explanation_fields.hpp"
#include "analysis/explain/program_fit.hpp"
#include "analysis/explain/program_text.hpp"
#include "analysis/records/record_kinds.hpp"
#include "analysis/records/record_parts.hpp"
#include "common/nearest_names.hpp"
#include "profiler/injection/name_pattern.hpp"
#include "profiler/records/kernel_fields.hpp"

namespace tilescope {
namespace {

/// A kernel as it was measured, its number of launches and, for other readers alone, where its bytes come
/// from.
struct Launches {
  static Json schema() {
    Json json = part_schema<KernelMeasurement>();
    for (const char* other : {"counters", "emulated", "time"}) json["properties"].erase(other);
    json["properties"]["launches"] = schema_of(Integer{1});
    json["properties"]["explanation"] = part_schema<Explanation>();
    json["required"].push_back("launches");
    return json;
  }
  Json write(const KernelGroup& group) const {
    Json json = KernelMeasurement{group.name, group.launch, {}, group.measured, {}};
    json["launches"] = group.launches;
    return json;
  }
  KernelGroup read(const JsonField& field) const {
    const auto kernel = Part<KernelMeasurement>{}.read(field);
    return {kernel.name, kernel.launch, field.at("launches").integer(1), kernel.measured};
  }
};

/// The passes of a tile program's text, as candidates beside the others.
std::vector<CandidateProgram> text_candidates(const std::string& text, const AttentionProblem& problem,
                                              const std::vector<Direction>& directions) {
  const ProgramText program = parse_program_text("program", text);
  std::vector<CandidateProgram> candidates;
  for (const Direction direction : directions) {
    if (!program.has(direction)) continue;
    for (const TileProgram& pass : program.programs(direction, problem)) {
      candidates.push_back(candidate_of(fmt::format("program's {}", to_string(pass.name)), direction, pass));
    }
  }
  return candidates;
}

/// Numbers of CTAs among which keys may be divided: extents of the grids of kernels whose names say that they
/// divide something, or are those of a library that divides keys.
std::vector<int> splits_in_grids(const std::vector<KernelGroup>& kernels) {
  constexpr std::int64_t kMostSplits = 128;
  std::set<int> splits;
  for (const KernelGroup& kernel : kernels) {
    const std::string name = lower_case(kernel.name);
    if (name.find("split") == std::string::npos && name.find("fmha_cutlassb") == std::string::npos) continue;
    for (const std::int64_t extent : kernel.launch.grid) {
      if (extent > 1 && extent <= kMostSplits) splits.insert(static_cast<int>(extent));
    }
  }
  return {splits.begin(), splits.end()};
}

/// An emulated kernel that stopped has the bytes until then alone.
void require_end(const std::string& source, const KernelMeasurement& kernel) {
  if (!kernel.emulated || kernel.emulated->completed) return;
  std::string why;
  for (const EmulatedFinding& finding : kernel.emulated->findings) {
    if (finding.is_error && why.empty()) why = ": " + finding.kind + ", " + finding.text;
  }
  throw BadInput(source, kernel.name,
                 "must have come to its end on the emulated device, where it stopped" + why);
}

std::vector<KernelMeasurement> chosen_kernels(const KernelRecord& record, const KernelChoice& choice,
                                              const std::string& source) {
  if (choice.skip < 0) throw BadInput("--skip", std::to_string(choice.skip), "must be at least 0");
  if (choice.count && *choice.count < 1) {
    throw BadInput("--count", std::to_string(*choice.count), "must be at least 1");
  }
  const NamePattern filter = parse_name_pattern("--kernel-filter", choice.filter);
  std::vector<KernelMeasurement> kernels;
  std::int64_t matching = 0;
  for (const KernelMeasurement& kernel : record.kernels) {
    if (!filter.in(kernel.name) || matching++ < choice.skip) continue;
    if (choice.count && static_cast<std::int64_t>(kernels.size()) == *choice.count) break;
    require_end(source, kernel);
    kernels.push_back(kernel);
  }
  if (kernels.empty()) {
    throw BadInput("RECORD", source,
                   fmt::format("must have kernels that --kernel-filter, --skip and --count leave; it has {}",
                               record.kernels.size()));
  }
  return kernels;
}

}  // namespace

template <typename Fields>
static void list(Fields& fields, Of<Fields, ExplainRecord>& record) {
  fields.items("argv", Text{}, record.argv);
  fields.required("git", Part<GitState>{}, record.git);
  fields.required("when", Text{}, record.when);
  fields.items("command", Text{}, record.command);
  fields.items("machine", Part<CollectionFacts>{}, record.collections);
  fields.required("problem", ProblemFields{}, record.problem);
  fields.items("passes", DirectionName{}, record.directions);
  fields.optional("must", Part<ReadWriteBytes>{}, record.must);
  fields.optional("program", Text{}, record.program);
  fields.items("kernels", Launches{}, record.kernels);
}

ExplainRecord explain_record(std::vector<std::string> argv, const std::string& source,
                             const KernelRecord& kernels, const KernelChoice& choice, ExplainInput input) {
  ExplainRecord record;
  record.argv = std::move(argv);
  record.git = built_from();
  record.when = kernels.when;
  record.command = kernels.argv;
  record.collections = kernels.collections;
  record.problem = input.problem;
  record.directions = std::move(input.directions);
  record.must = input.must;
  record.program = std::move(input.program);
  record.kernels = group_launches(chosen_kernels(kernels, choice, source));
  return record;
}

std::vector<KernelFit> explain(const ExplainRecord& record) {
  std::vector<CandidateProgram> candidates =
      candidate_programs(record.problem, record.directions, splits_in_grids(record.kernels));
  if (record.program) {
    std::ranges::move(text_candidates(*record.program, record.problem, record.directions),
                      std::back_inserter(candidates));
  }
  const std::optional<Machine> machine = machine_behind(record);
  const auto sm_count = machine ? std::optional(machine->sm_count.value) : std::nullopt;
  std::vector<KernelFit> fits;
  for (const KernelGroup& kernel : record.kernels) {
    KernelFit fit = fit_kernel(kernel, candidates, sm_count, !record.must);
    fit.other_heads = heads_that_fit_better(kernel, record.problem, candidates, fit, sm_count);
    if (fit.other_heads && fit.agreement == Agreement::explained) fit.agreement = Agreement::not_certain;
    fits.push_back(std::move(fit));
  }
  return fits;
}

std::vector<std::int64_t> heads_kv_as_good(const ExplainRecord& record, const std::vector<KernelFit>& fits) {
  const auto no_worse = [](const KernelFit& fit, const KernelFit& other) {
    return fit.agreement != Agreement::explained ||
           (other.agreement == Agreement::explained &&
            std::abs(other.read_residual_bytes) <= std::abs(fit.read_residual_bytes) &&
            std::abs(other.write_residual_bytes) <= std::abs(fit.write_residual_bytes));
  };
  std::vector<std::int64_t> as_good;
  for (std::int64_t heads_kv = 1; heads_kv <= record.problem.heads; ++heads_kv) {
    if (record.problem.heads % heads_kv != 0 || heads_kv == record.problem.heads_kv) continue;
    ExplainRecord other = record;
    other.problem.heads_kv = heads_kv;
    const std::vector<KernelFit> other_fits = explain(other);
    if (std::equal(fits.begin(), fits.end(), other_fits.begin(), no_worse)) as_good.push_back(heads_kv);
  }
  return as_good;
}

Json explain_record_schema() { return record_schema<ExplainRecord>(kExplainSchema); }

std::string to_json_text(const ExplainRecord& record) {
  const std::vector<KernelFit> fits = explain(record);
  Json json = record_json(kExplainSchema, record);
  const std::vector<LaunchAnswer> all = answers(record, fits);
  for (std::size_t i = 0; i < fits.size(); ++i) {
    json["kernels"][i]["explanation"] = Part<Explanation>{}.write({fits[i], all[i]});
  }
  return record_text(json);
}

ExplainRecord parse_explain_record(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  require_kind(source, json, {kExplainSchema});
  return Part<ExplainRecord>{}.read(JsonField(source, json));
}

}  // namespace tilescope
