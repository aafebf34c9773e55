// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/report.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>

#include "analysis/records/compare/kernel_group.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/records/record_kinds.hpp"
#include "analysis/report/claims/claim.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/studies/paper_studies.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope {
namespace {

constexpr const char* kLead =
    "How many bytes attention kernels move, and across which boundary. **SM<->L2** is the traffic between "
    "the SMs, with their registers and shared memory, and the L2: what the FlashAttention papers count as "
    "HBM accesses. **DRAM** is the traffic between the L2 and device memory. What **must move** is every "
    "input read once and every output written once. **B1 H32/8 N8192 D128** is "
    "1 sequence, 32 query heads over 8 key and value heads, 8192 tokens, 128 columns a head; a **tile** of "
    "128x64 is 128 queries against 64 keys. GB are 10⁹ bytes, a multiply-add is 2 FLOP.";

/// The first that a record has.
std::vector<NoiseFloor> noise_floor_of(const std::vector<CeilingsRecord>& records) {
  for (const CeilingsRecord& record : records) {
    if (!record.measured.noise_floor.empty()) return record.measured.noise_floor;
  }
  return {};
}

/// Whether a record is about cutting tiles finer, by formula: it has a section of its own, and its runs
/// would stand beside others as if they were other kernels.
bool is_of_slices(const RunRecord& record) {
  bool slices = false;
  for (const RunEntry& run : record.runs) {
    for (const PassRecord& pass : run.passes) {
      if (pass.simulated || pass.measured || pass.time) return false;
      slices = slices || pass.choices.diagonal_slices;
    }
  }
  return slices;
}

/// The study that wrote a record, else "".
std::string study_of(const RunRecord& record) {
  return record.argv.size() > 2 && record.argv[1] == "study" ? record.argv[2] : "";
}

/// Those of the records of one study, taken from them: it is about one claim of the papers and has a section
/// of its own; its runs are no kernels that one would compare with others.
std::vector<RunRecord> take_study(std::vector<RunRecord>& records, std::string_view study) {
  std::vector<RunRecord> taken;
  const auto rest = std::stable_partition(
      records.begin(), records.end(), [study](const RunRecord& record) { return study_of(record) != study; });
  std::move(rest, records.end(), std::back_inserter(taken));
  records.erase(rest, records.end());
  return taken;
}

/// Records by what they are about.
struct SortedRecords {
  std::vector<RunRecord> constants, sparsity, parallelism, slices, others;
};
SortedRecords sort_by_subject(std::vector<RunRecord> records) {
  SortedRecords sorted;
  sorted.constants = take_study(records, kConstantsStudy);
  sorted.sparsity = take_study(records, kSparsityStudy);
  sorted.parallelism = take_study(records, kParallelismStudy);
  std::partition_copy(records.begin(), records.end(), std::back_inserter(sorted.slices),
                      std::back_inserter(sorted.others), is_of_slices);
  return sorted;
}

/// The sections that there are data for, as a group.
void add(Document& document, SectionGroup group, std::vector<std::optional<Section>> sections) {
  for (std::optional<Section>& section : sections) {
    if (!section) continue;
    section->group = group;
    document.sections.push_back(std::move(*section));
  }
}

}  // namespace

void ReportRecords::add(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  const std::string schema = require_kind(source, json,
                                          {kRunSchema, kKernelsSchema, kExplainSchema, kCeilingsSchema,
                                           kDistributedSchema, kDistributedPeersSchema});
  if (schema == kExplainSchema) {
    explained.push_back(parse_explain_record(source, text));
  } else if (schema == kKernelsSchema) {
    kernels.push_back(parse_kernel_record(source, text));
  } else if (schema == kCeilingsSchema) {
    ceilings.push_back(parse_ceilings_record(source, text));
  } else if (schema == kDistributedSchema) {
    distributed.push_back(parse_distributed_record(source, text));
  } else if (schema == kDistributedPeersSchema) {
    distributed_peers.push_back(parse_distributed_peers(source, text));
  } else {
    runs.push_back(parse_run_record(source, text));
  }
}

Document make_report(const ReportRecords& all) {
  const std::vector<RunRecord>& records = all.runs;
  const SortedRecords sorted = sort_by_subject(records);
  const std::vector<RunSummary> runs = summarize(sorted.others);
  const std::vector<RunSummary> constants = summarize(sorted.constants),
                                sparsity = summarize(sorted.sparsity),
                                parallelism = summarize(sorted.parallelism);
  const std::vector<RunSummary> holdout = summarize(all.holdout);
  Document document{"TileScope report", kLead, {}};
  document.picture = bytes_picture(runs);
  std::vector<RunRecord> compared = records;
  for (const KernelRecord& kernels : all.kernels) compared.push_back(runs_of(kernels));
  std::optional<Finding> bytes = bytes_verdict(runs);
  if (!document.picture) document.picture = foreign_picture(all.kernels, all.explained);
  if (!bytes) bytes = foreign_verdict(all.kernels, all.explained);
  for (std::optional<Finding>& verdict :
       std::array{missing_verdict(records), refused_verdict(records), changes_verdict(all.baseline, compared),
                  bytes, error_verdict(records), model_verdict(runs, holdout), speed_verdict(runs)}) {
    if (verdict) document.verdicts.push_back(std::move(*verdict));
  }
  add(document, SectionGroup::bytes,
      {changes_section(all.baseline, compared), overview_section(runs), summary_section(runs),
       seqlen_section(runs), block_section(runs), l2_section(runs), tensor_section(runs),
       theorem_section(constants, runs), growth_section(runs), sparsity_section(sparsity),
       parallelism_section(parallelism), diagonal_section(summarize(sorted.slices)), memory_section(runs),
       pass_section(runs)});
  add(document, SectionGroup::model,
      {holdout_section(holdout), measured_section(runs, noise_floor_of(all.ceilings)), account_section(runs),
       prediction_section(runs), residency_section(all.ceilings), progress_section(records),
       simulation_speed_section(records)});
  add(document, SectionGroup::speed,
      {device_speed_section(runs), speed_section(runs), roofline_section(runs), work_section(runs),
       device_rate_section(runs)});
  add(document, SectionGroup::checks,
      {error_section(records), repeat_section(records), paper_figure2_section(runs),
       paper_error_section(records)});
  std::vector<RunRecord> sources = records;
  sources.insert(sources.end(), all.holdout.begin(), all.holdout.end());
  add(document, SectionGroup::others,
      {several_gpus_section(all.distributed, all.distributed_peers, all.ceilings),
       explain_section(all.explained), kernel_section(all.kernels), record_section(sources)});
  const Evidence evidence{records,
                          runs,
                          holdout,
                          constants,
                          sparsity,
                          parallelism,
                          noise_floor_of(all.ceilings),
                          all.explained,
                          all.ceilings,
                          summarize(all.claims),
                          all.claims_ceilings,
                          all.claims_commands,
                          all.claims};
  document.for_texts = {claims_matrix(evidence), findings_section(evidence)};
  for (auto& section :
       {figure2_on_tensor_cores(evidence), libraries_by_device(evidence), errors_on_devices(evidence)}) {
    if (section) document.for_texts.push_back(*section);
  }

  if (document.sections.size() <= kFewSections) {
    for (Section& section : document.sections) section.open = true;
  }
  return document;
}

std::vector<ReportFile> report_files(const Document& document) {
  std::vector<ReportFile> files = {{"report.html", to_html(document)},
                                   {"report.md", to_markdown(document, kFigureFolder)}};
  const auto add_figure = [&files](const Figure& figure) {
    files.push_back({std::string(kFigureFolder) + "/" + figure.name + ".svg", to_svg(figure)});
  };
  if (document.picture) add_figure(*document.picture);
  for (const Section& section : document.sections) {
    for (const Block& block : section.blocks) {
      if (const Figure* figure = std::get_if<Figure>(&block)) add_figure(*figure);
    }
  }
  return files;
}

}  // namespace tilescope
