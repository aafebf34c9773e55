// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/result_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "common/errors.hpp"
#include "emulator/machine/launch_limits.hpp"

namespace tilescope::gpu::emulator {
namespace {

/// The counts of a line, in the order of their columns.
template <class Line, class F>
void for_counts(Line& line, F&& f) {
  for (auto* const count :
       {&line.instructions, &line.requests, &line.asked_bytes, &line.sectors, &line.least_sectors,
        &line.read_bytes, &line.write_bytes, &line.least_write_bytes, &line.l1_hit_bytes,
        &line.beyond_tensor_bytes, &line.shared_requests, &line.wavefronts, &line.least_wavefronts})
    f(*count);
}
template <class Counts, class F>
void for_bounds(Counts& counts, F&& f) {
  for (auto* const count : {&counts.least_read_bytes, &counts.least_write_bytes, &counts.constant_bytes,
                            &counts.must_read_bytes, &counts.must_write_bytes})
    f(*count);
}

std::string in_one_column(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return text;
}

std::string columns_of(const SourceLine& line) {
  return fmt::format("{}\t{}\t{}", in_one_column(line.file), line.line, line.ptx_line);
}
std::string columns_of(const Extent& extent) {
  return fmt::format("{}\t{}\t{}", extent.x, extent.y, extent.z);
}

/// The columns of a row, taken one after the other.
class Row {
 public:
  explicit Row(const std::string& text) : rest_(text) {}
  bool at_end() const { return ended_; }
  std::string text() {
    if (ended_) throw BadInput("the results of an emulated program are cut short");
    const std::size_t end = std::min(rest_.find('\t'), rest_.size());
    std::string column(rest_.substr(0, end));
    ended_ = end == rest_.size();
    if (!ended_) rest_.remove_prefix(end + 1);
    return column;
  }
  template <class T>
  T number() {
    const std::string column = text();
    T value{};
    const auto [end, error] = std::from_chars(column.data(), column.data() + column.size(), value);
    if (error != std::errc() || end != column.data() + column.size())
      throw BadInput("the results of an emulated program have '" + column + "' for a number");
    return value;
  }
  Extent extent() {
    const auto x = number<unsigned>(), y = number<unsigned>(), z = number<unsigned>();
    return {x, y, z};
  }
  SourceLine line() {
    const std::string file = text();
    const int line = number<int>(), ptx_line = number<int>();
    return {file, line, ptx_line};
  }

 private:
  std::string_view rest_;
  bool ended_ = false;
};

ToldLaunch read_launch(Row& row) {
  ToldLaunch told;
  told.result.kernel = row.text();
  told.facts.target = row.text();
  for (Extent* const extent : {&told.facts.grid, &told.facts.block, &told.facts.cluster})
    *extent = row.extent();
  told.facts.shared_bytes = row.number<std::int64_t>();
  told.facts.local_bytes = row.number<std::int64_t>();
  told.result.completed = row.number<int>() != 0;
  told.result.seconds = row.number<double>();
  told.result.report.steps = row.number<std::uint64_t>();
  for_bounds(told.result.counts, [&](std::uint64_t& count) { count = row.number<std::uint64_t>(); });
  return told;
}

LineCounts read_line(Row& row) {
  LineCounts line;
  line.place = row.line();
  line.text = row.text();
  for_counts(line, [&](std::uint64_t& count) { count = row.number<std::uint64_t>(); });
  return line;
}

Finding read_finding(Row& row) {
  Finding finding{static_cast<FindingKind>(row.number<int>()), {}, row.text()};
  while (!row.at_end()) finding.lines.push_back(row.line());
  return finding;
}

}  // namespace

LaunchFacts facts_of(const ptx::Module& module, const Launch& launch, std::optional<int> registers) {
  return {.grid = launch.grid,
          .block = launch.block,
          .cluster = launch.cluster,
          .shared_bytes = static_shared_bytes(*launch.kernel) + std::int64_t{launch.dynamic_shared_bytes},
          .local_bytes = launch.kernel->local_bytes,
          .registers = registers,
          .target = module.target};
}

void write_result(std::ostream& out, const LaunchFacts& facts, const KernelResult& result) {
  out << fmt::format("launch\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{:d}\t{}\t{}", in_one_column(result.kernel),
                     facts.target, columns_of(facts.grid), columns_of(facts.block), columns_of(facts.cluster),
                     facts.shared_bytes, facts.local_bytes, result.completed, result.seconds,
                     result.report.steps);
  for_bounds(result.counts, [&](const std::uint64_t& count) { out << '\t' << count; });
  out << '\n';
  for (const auto& [name, value] : result.counts.metrics) out << fmt::format("metric\t{}\t{}\n", name, value);
  for (const LineCounts& line : result.counts.lines) {
    out << fmt::format("line\t{}\t{}", columns_of(line.place), in_one_column(line.text));
    for_counts(line, [&](const std::uint64_t& count) { out << '\t' << count; });
    out << '\n';
  }
  for (const Finding& finding : result.findings) {
    out << fmt::format("finding\t{}\t{}", static_cast<int>(finding.kind), in_one_column(finding.text));
    for (const SourceLine& line : finding.lines) out << '\t' << columns_of(line);
    out << '\n';
  }
  for (const std::string& note : result.counts.notes) out << "note\t" << in_one_column(note) << '\n';
  out.flush();
}

std::vector<ToldLaunch> read_results(std::istream& in) {
  std::vector<ToldLaunch> told;
  for (std::string text; std::getline(in, text);) {
    Row row(text);
    const std::string kind = row.text();
    if (kind == "launch") {
      told.push_back(read_launch(row));
      continue;
    }
    if (told.empty()) throw BadInput("the results of an emulated program begin with '" + kind + "'");
    KernelResult& result = told.back().result;
    if (kind == "metric") {
      const std::string name = row.text();
      result.counts.metrics[name] = row.number<double>();
    } else if (kind == "line") {
      result.counts.lines.push_back(read_line(row));
    } else if (kind == "finding") {
      result.findings.push_back(read_finding(row));
    } else if (kind == "note") {
      result.counts.notes.push_back(row.text());
    } else {
      throw BadInput("the results of an emulated program have a row '" + kind + "'");
    }
  }
  return told;
}

}  // namespace tilescope::gpu::emulator
