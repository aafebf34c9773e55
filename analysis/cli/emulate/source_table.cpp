// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/cli/emulate/emulate.hpp"
#include "analysis/cli/text_table.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

std::string bytes_or_dash(std::int64_t bytes) {
  return bytes == 0 ? "-" : format_bytes(static_cast<double>(bytes));
}

std::string ratio_or_dash(std::int64_t of, std::int64_t by) {
  return by == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(of) / static_cast<double>(by));
}

std::string place_of(const EmulatedLine& line) {
  if (line.file.empty()) return fmt::format("PTX line {}", line.line);
  return fmt::format("{}:{}", line.file.substr(line.file.find_last_of('/') + 1), line.line);
}

std::string kinds_at(const EmulatedKernel& kernel, const std::string& place) {
  std::vector<std::string> kinds;
  for (const EmulatedFinding& finding : kernel.findings) {
    const bool here = std::find(finding.places.begin(), finding.places.end(), place) != finding.places.end();
    if (here && std::find(kinds.begin(), kinds.end(), finding.kind) == kinds.end())
      kinds.push_back(finding.kind);
  }
  return fmt::format("{}", fmt::join(kinds, ", "));
}

std::string lines_table(const EmulatedKernel& kernel) {
  constexpr std::size_t kMostText = 48;
  std::vector<std::vector<std::string>> rows = {
      {"line", "read", "written", "sectors/request", "excess", "wavefronts/request", "finding", "source"}};
  for (const EmulatedLine& line : kernel.lines) {
    std::string finding = kinds_at(kernel, place_of(line));
    rows.push_back({place_of(line), bytes_or_dash(line.read_bytes), bytes_or_dash(line.write_bytes),
                    ratio_or_dash(line.sectors, line.requests), bytes_or_dash(line.excess_bytes()),
                    ratio_or_dash(line.wavefronts, line.shared_requests), finding.empty() ? "-" : finding,
                    line.text.substr(0, kMostText)});
  }
  return align_told_columns(rows, "  ", {false, true, true, true, true, true, false, false});
}

std::string findings_text(const EmulatedKernel& kernel) {
  std::string text;
  for (const EmulatedFinding& finding : kernel.findings) {
    text += fmt::format("{}{}{}: {}\n", finding.kind, finding.places.empty() ? "" : " at ",
                        fmt::join(finding.places, " and "), finding.text);
  }
  return text;
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
  for (const std::string& note : emulated.notes) text += wrapped("  " + note);
  text += "\n" + lines_table(emulated) + "\n" + findings_text(emulated);
  if (emulated.findings.empty()) text += "nothing found\n";
  return text;
}

}  // namespace tilescope::cli
