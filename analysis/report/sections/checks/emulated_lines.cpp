// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/sections/checks/emulated_lines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/number_format.hpp"

namespace tilescope {
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
    const bool here = std::ranges::find(finding.places, place) != finding.places.end();
    if (here && std::ranges::find(kinds, finding.kind) == kinds.end()) kinds.push_back(finding.kind);
  }
  return kinds.empty() ? "-" : fmt::format("{}", fmt::join(kinds, ", "));
}

/// As code in inline text.
std::string as_code(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), '`'), text.end());
  return text.empty() ? "-" : "`" + text + "`";
}

}  // namespace

std::vector<std::vector<std::string>> emulated_rows(const EmulatedKernel& kernel) {
  std::vector<std::vector<std::string>> rows = {
      {"line", "read", "written", "sectors/request", "excess", "wavefronts/request", "finding", "source"}};
  for (const EmulatedLine& line : kernel.lines) {
    const std::string place = place_of(line);
    rows.push_back({place, bytes_or_dash(line.read_bytes), bytes_or_dash(line.write_bytes),
                    ratio_or_dash(line.sectors, line.requests), bytes_or_dash(line.excess_bytes()),
                    ratio_or_dash(line.wavefronts, line.shared_requests), kinds_at(kernel, place),
                    line.text});
  }
  return rows;
}

std::vector<std::string> finding_sentences(const EmulatedKernel& kernel) {
  std::vector<std::string> sentences;
  for (const EmulatedFinding& finding : kernel.findings) {
    sentences.push_back(fmt::format("{}{}{}: {}", finding.kind, finding.places.empty() ? "" : " at ",
                                    fmt::join(finding.places, " and "), finding.text));
  }
  return sentences;
}

std::vector<Block> emulated_blocks(const KernelMeasurement& kernel) {
  const EmulatedKernel& emulated = *kernel.emulated;
  std::vector<std::vector<std::string>> rows = emulated_rows(emulated);
  Table table{fmt::format("{}, emulated{}: bytes between SMs and L2 by line of the source.",
                          as_code(kernel.name), emulated.completed ? "" : " up to where it broke off"),
              {},
              {}};
  for (std::size_t column = 0; column < rows[0].size(); ++column)
    table.columns.push_back({rows[0][column], column >= 1 && column <= 5});
  for (std::size_t i = 1; i < rows.size(); ++i) {
    rows[i].front() = as_code(rows[i].front());
    rows[i].back() = as_code(rows[i].back());
    table.rows.push_back(std::move(rows[i]));
  }
  std::vector<Block> blocks = {std::move(table)};
  std::vector<std::string> findings = finding_sentences(emulated);
  for (std::string& finding : findings) finding = as_code(std::move(finding));
  if (!findings.empty()) blocks.push_back(Bullets{std::move(findings)});
  return blocks;
}

}  // namespace tilescope
