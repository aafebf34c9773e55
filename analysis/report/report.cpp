// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/report.hpp"

#include <filesystem>

#include "analysis/records/atomic_file.hpp"
#include "analysis/records/output_path.hpp"
#include "analysis/report/sections/report_sections.hpp"

namespace tilescope {
namespace {

constexpr const char* kLead =
    "How many bytes attention kernels move, and across which boundary. **SM<->L2** is the traffic between "
    "the SMs, with their registers and shared memory, and the L2: what the FlashAttention papers count as "
    "HBM accesses. **DRAM** is the traffic between the L2 and device memory. **Compulsory** traffic is "
    "every input read once and every output written once; no kernel moves less. GB are 10⁹ bytes, a "
    "multiply-add is 2 FLOP.";

/// Of the first record that has them.
std::vector<NoiseFloor> noise_floor_of(const std::vector<CeilingsRecord>& records) {
  for (const CeilingsRecord& record : records) {
    if (!record.measured.noise_floor.empty()) return record.measured.noise_floor;
  }
  return {};
}

void add(Document& document, std::optional<Section> section) {
  if (section) document.sections.push_back(std::move(*section));
}

}  // namespace

Document make_report(const ReportRecords& all) {
  const std::vector<RunRecord>& records = all.runs;
  const std::vector<RunSummary> runs = summarize(records);
  Document document{"TileScope report", kLead, {}};
  add(document, summary_section(runs));
  add(document, error_section(records));
  add(document, repeat_section(records));
  add(document, speed_section(runs));
  add(document, simulation_speed_section(records));
  add(document, device_speed_section(runs));
  add(document, device_rate_section(runs));
  add(document, measured_section(runs, noise_floor_of(all.ceilings)));
  add(document, account_section(runs));
  add(document, prediction_section(runs));
  add(document, growth_section(runs));
  add(document, memory_section(runs));
  add(document, work_section(runs));
  add(document, residency_section(all.ceilings));
  add(document, progress_section(records));
  add(document, kernel_section(all.kernels));
  add(document, explain_section(all.explained));
  add(document, tensor_section(runs));
  add(document, seqlen_section(runs));
  add(document, block_section(runs));
  add(document, l2_section(runs));
  add(document, roofline_section(runs));
  add(document, paper_figure2_section(runs));
  add(document, paper_error_section(records));
  add(document, pass_section(runs));
  if (!records.empty()) add(document, record_section(records));
  return document;
}

std::vector<ReportFile> report_files(const Document& document) {
  std::vector<ReportFile> files = {{"report.html", to_html(document)},
                                   {"report.md", to_markdown(document, kFigureFolder)}};
  for (const Section& section : document.sections) {
    for (const Block& block : section.blocks) {
      const Figure* figure = std::get_if<Figure>(&block);
      if (figure) files.push_back({std::string(kFigureFolder) + "/" + figure->name + ".svg", figure->svg});
    }
  }
  return files;
}

void write_report(const ReportRecords& records, const std::string& folder) {
  const std::vector<ReportFile> files = report_files(make_report(records));
  const std::filesystem::path root = folder;
  const CreatedFolders created = require_writable_folder("--out", (root / kFigureFolder).string());
  for (const ReportFile& file : files) {
    write_file_atomically("--out", (root / file.path).string(), file.contents);
  }
}

}  // namespace tilescope
