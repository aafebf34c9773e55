// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/cli/emulate/emulate.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/report/sections/checks/emulated_lines.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

/// A ratio of counts as its row shows it, and for programs with all digits.
Cell per_request(const std::string& shown, std::int64_t count, std::int64_t requests) {
  if (requests == 0) return {shown};
  return as_number(shown, static_cast<double>(count) / static_cast<double>(requests));
}

Table lines_table(const EmulatedKernel& kernel) {
  constexpr std::size_t kMostText = 48;
  Table table{.indent = "  "};
  const std::vector<std::vector<std::string>> rows = emulated_rows(kernel);
  for (const std::vector<std::string>& row : rows) {
    Row& cells = table.rows.emplace_back(row.begin(), row.end());
    cells.back() = row.back().substr(0, kMostText);
    if (table.rows.size() == 1) continue;
    const EmulatedLine& line = kernel.lines[table.rows.size() - 2];
    cells[1] = {row[1], std::to_string(line.read_bytes), "B"};
    cells[2] = {row[2], std::to_string(line.write_bytes), "B"};
    cells[3] = per_request(row[3], line.sectors, line.requests);
    cells[4] = {row[4], std::to_string(line.excess_bytes()), "B"};
    cells[5] = per_request(row[5], line.wavefronts, line.shared_requests);
  }
  return table;
}

}  // namespace

Output emulation_text(const KernelMeasurement& kernel, bool races) {
  const EmulatedKernel& emulated = *kernel.emulated;
  const double read = kernel.measured.at("sm_l2_read_bytes"),
               written = kernel.measured.at("sm_l2_write_bytes");
  const auto must = static_cast<double>(emulated.must_read_bytes + emulated.must_write_bytes);
  std::string text =
      wrapped(fmt::format("{} [grid {}, block {}]{}", kernel.name, fmt::join(kernel.launch.grid, "x"),
                          fmt::join(kernel.launch.block, "x"),
                          emulated.completed ? "" : ", broken off: bytes up to there"),
              "  ");
  const auto add = [&text](const std::string& sentence) { text += "  " + wrapped(sentence, "    "); };
  add(fmt::format("SM<->L2: {} read, {} written", format_bytes(read), format_bytes(written)));
  if (emulated.completed && must > 0) {
    add(fmt::format("different sectors: {} read, {} written; {} the bytes cross SM<->L2",
                    format_bytes(static_cast<double>(emulated.must_read_bytes)),
                    format_bytes(static_cast<double>(emulated.must_write_bytes)),
                    format_ratio((read + written) / must)));
  }
  for (const std::string& note : emulated.notes) add(note);
  std::string findings = "\n";
  for (const std::string& sentence : finding_sentences(emulated)) findings += wrapped(sentence, "  ");
  if (emulated.findings.empty()) {
    findings += races ? "nothing found\n" : "nothing found; races are looked for with --races\n";
  }
  return Output(text + "\n") + lines_table(emulated) + findings;
}

}  // namespace tilescope::cli
