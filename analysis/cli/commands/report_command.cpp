// SPDX-License-Identifier: Apache-2.0
// `tilescope report`: records in, one HTML page and Markdown with SVG figures out.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/cli/command.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/model/replay/simulate_record.hpp"
#include "analysis/records/compare/record_diff.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/report/document/report_document.hpp"
#include "analysis/report/report.hpp"
#include "common/errors.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope::cli {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::vector<std::string> records;
  std::string out = "report";
  std::vector<std::string> fill;
  std::vector<std::string> holdout, claims;
  std::vector<std::string> baseline;
  std::string section;
  bool pdf = false;
};

/// How a text at `file` reaches `folder`.
std::string relative_folder(const std::string& file, const fs::path& folder) {
  const fs::path base = fs::absolute(file).lexically_normal().parent_path();
  return fs::absolute(folder).lexically_normal().lexically_relative(base).generic_string();
}

/// NAME.pdf of each NAME.svg; where this machine lacks what makes them, why.
std::exception_ptr add_pdf_figures(std::vector<ReportFile>& files) {
  const std::size_t svg_and_pages = files.size();
  try {
    for (std::size_t i = 0; i < svg_and_pages; ++i) {
      fs::path path = files[i].path;
      if (path.extension() == ".svg")
        files.push_back({path.replace_extension(".pdf").string(), to_pdf(files[i].contents)});
    }
  } catch (const MachineLacks&) {
    files.resize(svg_and_pages);
    return std::current_exception();
  }
  return nullptr;
}

int run_report(const ReportArguments& arguments, const CommandContext& context) {
  if (arguments.records.empty() && arguments.holdout.empty()) {
    throw BadInput("RECORD", "(none)", "at least one file written by --json of another command is needed");
  }
  const Progress progress(context, "reporting");
  ReportRecords records;
  std::vector<std::string> paths = arguments.records;
  std::ranges::sort(paths);  // a shell's * sorts by the user's language
  for (const std::string& path : paths) {
    records.add(path, read_text_file(path));
  }
  paths = arguments.holdout;
  std::ranges::sort(paths);
  for (const std::string& path : paths) records.holdout.push_back(read_run_record(path));
  paths = arguments.claims;
  std::ranges::sort(paths);
  ReportRecords of_claims;
  for (const std::string& path : paths) of_claims.add(path, read_text_file(path));
  records.claims = std::move(of_claims.runs);
  records.claims_ceilings = std::move(of_claims.ceilings);
  records.claims_commands = std::move(of_claims.kernels);
  for (const std::string& path : arguments.baseline)
    records.baseline.push_back(comparable_record(path, read_text_file(path)));
  join_simulations(records.runs);
  join_simulations(records.claims);
  const Document whole = make_report(records);
  const Document document = arguments.section.empty() ? whole : with_section_alone(whole, arguments.section);

  std::vector<ReportFile> files = report_files(document);
  const std::exception_ptr no_pdf = arguments.pdf ? add_pdf_figures(files) : nullptr;
  for (ReportFile& file : files) file.path = (fs::path(arguments.out) / file.path).string();
  for (const std::string& path : arguments.fill) {
    const std::string figures = relative_folder(path, fs::path(arguments.out) / kFigureFolder);
    files.push_back({path, fill_generated_parts(path, read_text_file(path), whole, figures)});
  }
  const CreatedFolders created =
      require_writable_folder("--out", (fs::path(arguments.out) / kFigureFolder).string());
  for (const std::string& path : arguments.fill) require_writable_file("--fill", path);
  auto written = nlohmann::ordered_json::array();
  for (const ReportFile& file : files) {
    write_file_atomically("--out", file.path, file.contents);
    written.push_back(file.path);
  }
  context.print(fmt::format("{}\n", fmt::join(written.get<std::vector<std::string>>(), "\n")));
  context.write_json(nlohmann::ordered_json{{"files", written}}.dump(2) + "\n");
  if (no_pdf) std::rethrow_exception(no_pdf);
  return kFine;
}

}  // namespace

void add_report_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<ReportArguments>();
  CLI::App& command = add_command(app, context, "report",
                                  "figures and tables from records, as HTML and as Markdown with SVG or PDF",
                                  [arguments, &context] { return run_report(*arguments, context); });
  add_value(command, "records", arguments->records, "RECORD",
            "records that other commands wrote with --json");
  add_value(command, "--holdout", arguments->holdout, "RECORD...",
            "measured records of problems that nothing in the model was fitted to; they are scored in a "
            "section of their own")
      ->expected(1, CLI::detail::expected_max_vector_size);
  add_value(
      command, "--claims", arguments->claims, "RECORD...",
      "records that were measured for single claims of the papers: they stand in the page of claims alone")
      ->expected(1, CLI::detail::expected_max_vector_size);
  add_value(command, "--baseline", arguments->baseline, "RECORD...",
            "earlier records: what became less and what became more since, in green and red")
      ->expected(1, CLI::detail::expected_max_vector_size);
  add_value(command, "--section", arguments->section, "NAME",
            "this section alone; its name is its anchor in report.html#NAME");
  command.add_flag("--pdf", arguments->pdf, "the figures as PDF, too; needs rsvg-convert (librsvg2-bin)");
  add_value(command, "--out", arguments->out, "DIR", "folder to write into; default report")
      ->capture_default_str();
  add_value(command, "--fill", arguments->fill, "FILE",
            "a text file whose generated parts are to be replaced too; may be repeated")
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->allow_extra_args(false);
  show_examples(command, {{"report run.json --out report", "report.html and report.md from one record"},
                          {"report new.json --baseline old.json", "with what changed between the two"},
                          {"report run.json --section roofline --out roofline", "one section alone"},
                          {"report reports/data/*.json.gz", "from many, into the folder report/"}});
}

}  // namespace tilescope::cli
