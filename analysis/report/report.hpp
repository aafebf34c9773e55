// SPDX-License-Identifier: Apache-2.0
// Records in, report out: one HTML page, and the same as Markdown with SVG figures.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/explain/explain_record.hpp"
#include "analysis/records/ceilings_record.hpp"
#include "analysis/records/distributed_record.hpp"
#include "analysis/records/run_record.hpp"
#include "analysis/report/document/report_document.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope {

/// The records of a report, by what wrote them.
struct ReportRecords {
  std::vector<RunRecord> runs;
  std::vector<KernelRecord> kernels = {};
  std::vector<ExplainRecord> explained = {};
  std::vector<CeilingsRecord> ceilings = {};
  std::vector<DistributedRecord> distributed = {};
  std::vector<DistributedPeers> distributed_peers = {};
  std::vector<RunRecord> baseline = {};  // what the others are held against, by what both hold
  /// Measured for single claims, of devices, tiles and variants that stand in no other comparison.
  std::vector<RunRecord> claims = {};
  std::vector<CeilingsRecord> claims_ceilings = {};
  std::vector<KernelRecord> claims_commands = {};
  std::vector<RunRecord> holdout = {};  // of problems that nothing in the models was fitted to

  /// Adds the record of any schema that `text` holds.
  /// @param source what error messages call the text @throws BadInput as the schemas' readers
  void add(const std::string& source, std::string_view text);
};

/// Everything that the records let one say: a section appears when the data for it are there. A function of
/// the records alone: no date, no path, no machine of the reader's.
Document make_report(const ReportRecords& records);

/// Folder of the SVG files inside that of the report.
inline constexpr const char* kFigureFolder = "figures";

/// A file of a report; `path` is relative to its folder.
struct ReportFile {
  std::string path;
  std::string contents;
};

/// report.html, report.md and figures/NAME.svg.
std::vector<ReportFile> report_files(const Document& document);

}  // namespace tilescope
