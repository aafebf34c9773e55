// SPDX-License-Identifier: Apache-2.0
#include "profiler/records/ncu_csv.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "common/errors.hpp"
#include "common/pattern.hpp"

namespace tilescope {
namespace {

using Row = std::vector<std::string>;

/// The cells of one line in which each is quoted; a quote inside a cell is written twice.
Row split(std::string_view line) {
  Row cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

/// Rows of the table; what the program itself and ncu's own messages print among them begins without a quote.
std::vector<Row> rows_of(std::string_view text) {
  std::vector<Row> rows;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('"')) rows.push_back(split(line));
  }
  return rows;
}

std::array<std::int64_t, 3> read_size(const std::string& source, const std::string& text) {
  long long x = 0, y = 0, z = 0;
  if (std::sscanf(text.c_str(), "(%lld, %lld, %lld)", &x, &y, &z) != 3) {
    throw BadInput(source + ": grid or block size", text, "must look like (32, 1, 1)");
  }
  return {x, y, z};
}

double read_number(const std::string& source, const std::string& column, std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ','), text.end());
  std::size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size()) throw BadInput(source + ": " + column, text, "must be a number");
  return value;
}

/// Counters, and what the page says of the launch.
bool is_metric(const std::string& name) {
  return name.starts_with("launch__") ||
         (name.find("__") != std::string::npos && name.find('.') != std::string::npos);
}

/// What is not printed in base units is rounded.
void require_base_unit(const std::string& source, const std::string& name, const std::string& unit) {
  static const Pattern kScaled("[KMGT](byte|sector|inst|cycle|request).*");
  if (!kScaled.matches(unit)) return;
  throw BadInput(source + ": " + name, "in " + unit, "must be exact: ncu --print-units base");
}

}  // namespace

bool is_ncu_text(std::string_view text) { return text.find("Metric Name") != std::string_view::npos; }

std::vector<KernelMeasurement> parse_ncu_text(const std::string& source, std::string_view text) {
  static const Pattern kKernel(R"(^ *(\S.*) (\(\d+, \d+, \d+\))x(\(\d+, \d+, \d+\)), Context.*)");
  static const Pattern kMetric(R"(^ +(\w+__[\w.]+) +(?:([^\d ]\S*) +)?([\d.,]+) *$)");
  std::vector<KernelMeasurement> kernels;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (const auto found = kKernel.match(line); !found.empty()) {
      kernels.emplace_back();
      kernels.back().name = found[1];
      kernels.back().launch.grid = read_size(source, found[2]);
      kernels.back().launch.block = read_size(source, found[3]);
    } else if (const auto metric = kMetric.match(line);
               !kernels.empty() && !metric.empty() && is_metric(metric[1])) {
      require_base_unit(source, metric[1], metric[2]);
      kernels.back().counters[metric[1]] = read_number(source, metric[1], metric[3]);
    }
  }
  if (kernels.empty()) {
    throw BadInput(source, "a page without kernels", "must be what ncu --page raw --print-units base wrote");
  }
  return kernels;
}

std::vector<KernelMeasurement> parse_ncu_csv(const std::string& source, std::string_view text) {
  const std::vector<Row> rows = rows_of(text);
  const Row header = rows.empty() ? Row{} : rows.front();
  const auto column = [&](const char* name) {
    const auto at = std::ranges::find(header, name);
    if (at == header.end())
      throw BadInput(source + ": columns", name, "must be among them (`ncu --csv --page raw`)");
    return static_cast<std::size_t>(at - header.begin());
  };
  const std::size_t name = column("Kernel Name"), grid = column("Grid Size"), block = column("Block Size");
  std::vector<KernelMeasurement> kernels;
  for (std::size_t r = 2; r < rows.size(); ++r) {  // the second row holds the units
    const Row& row = rows[r];
    if (row.size() != header.size()) {
      throw BadInput(source + ": row " + std::to_string(r), std::to_string(row.size()) + " cells",
                     "must be " + std::to_string(header.size()));
    }
    KernelMeasurement kernel;
    kernel.name = row[name];
    kernel.launch.grid = read_size(source, row[grid]);
    kernel.launch.block = read_size(source, row[block]);
    for (std::size_t c = 0; c < header.size(); ++c) {
      if (!is_metric(header[c]) || row[c].empty()) continue;
      require_base_unit(source, header[c], rows[1][c]);
      const bool is_word = row[c].find_first_not_of("0123456789.,") != std::string::npos;
      if (is_word && header[c].starts_with("launch__")) continue;
      kernel.counters[header[c]] = read_number(source, header[c], row[c]);
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

}  // namespace tilescope
