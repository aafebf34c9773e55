// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/cli/emulate/emulate.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/report/sections/checks/emulated_lines.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

std::string lines_table(const EmulatedKernel& kernel) {
  constexpr std::size_t kMostText = 48;
  std::vector<std::vector<std::string>> rows = emulated_rows(kernel);
  for (std::vector<std::string>& row : rows) row.back() = row.back().substr(0, kMostText);
  return align_told_columns(rows, "  ", {false, true, true, true, true, true, false, false});
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
