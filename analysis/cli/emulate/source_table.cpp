// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/cli/emulate/emulate.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/report/sections/checks/emulated_lines.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

std::string lines_table(const EmulatedKernel& kernel) {
  constexpr std::size_t kMostText = 48;
  constexpr std::size_t kFirstNumber = 1, kLastNumber = 5;
  Table table{.indent = "  "};
  for (std::vector<std::string>& row : emulated_rows(kernel)) {
    row.back() = row.back().substr(0, kMostText);
    Row& cells = table.rows.emplace_back(row.begin(), row.end());
    for (std::size_t i = kFirstNumber; i <= kLastNumber; ++i) cells[i] = {row[i], row[i], ""};
  }
  return Output(table).text();
}

}  // namespace

std::string emulation_text(const KernelMeasurement& kernel) {
  const EmulatedKernel& emulated = *kernel.emulated;
  const double read = kernel.measured.at("sm_l2_read_bytes"),
               written = kernel.measured.at("sm_l2_write_bytes");
  const auto must = static_cast<double>(emulated.must_read_bytes + emulated.must_write_bytes);
  std::string text = fmt::format("{} [grid {}, block {}]{}\n", kernel.name,
                                 fmt::join(kernel.launch.grid, "x"), fmt::join(kernel.launch.block, "x"),
                                 emulated.completed ? "" : ", broken off: bytes up to there");
  text += fmt::format("  SM<->L2: {} read, {} written\n", format_bytes(read), format_bytes(written));
  if (emulated.completed && must > 0) {
    text += fmt::format("  different sectors: {} read, {} written; {} the bytes cross SM<->L2\n",
                        format_bytes(static_cast<double>(emulated.must_read_bytes)),
                        format_bytes(static_cast<double>(emulated.must_write_bytes)),
                        format_ratio((read + written) / must));
  }
  for (const std::string& note : emulated.notes) text += "  " + note + "\n";
  text += "\n" + lines_table(emulated) + "\n";
  for (const std::string& sentence : finding_sentences(emulated)) text += sentence + "\n";
  if (emulated.findings.empty()) text += "nothing found\n";
  return text;
}

}  // namespace tilescope::cli
