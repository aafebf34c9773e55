// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/sections/model/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace tilescope {
namespace {

std::string percent(double share) { return fmt::format("{:+.3f} %", 100 * share); }

/// A row for each kernel, pass, problem and side that does not agree, with the worst of its cases.
Table exception_table(const std::vector<Deviation>& deviations) {
  Table table{"Exceptions, the largest first.",
              {{"kernel"}, {"pass"}, {"problem"}, {"side"}, {"cases", true}, {"off by", true}},
              {}};
  std::map<std::vector<std::string>, std::pair<int, double>> worst;
  for (const Deviation& one : deviations) {
    if (one.agrees) continue;
    auto& [cases, off] = worst[{one.kernel, one.pass, one.problem, one.side}];
    ++cases;
    if (std::abs(one.off) > std::abs(off)) off = one.off;
  }
  std::vector<std::pair<std::vector<std::string>, std::pair<int, double>>> rows(worst.begin(), worst.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return std::abs(a.second.second) > std::abs(b.second.second);
  });
  for (auto& [row, found] : rows) {
    table.rows.push_back(row);
    table.rows.back().push_back(std::to_string(found.first));
    table.rows.back().push_back(percent(found.second));
  }
  return table;
}

}  // namespace

std::string percent_range(double low, double high) {
  const std::string first = fmt::format("{:+.3f}", 100 * low), last = fmt::format("{:+.3f}", 100 * high);
  return first == last ? first + " %" : fmt::format("{} ... {} %", first, last);
}

bool nothing_off(std::string_view percent_range) {
  return percent_range.find_first_of("123456789") == std::string_view::npos;
}

std::string left_out_text(std::size_t silent, std::size_t all) {
  return fmt::format("{} of {} rows, in which nothing is off at three digits, are left out.", silent, all);
}

std::string AgreementCount::text() const { return fmt::format("{} of {}", agree, all); }

AgreementCount count_agreeing(const std::vector<Deviation>& deviations) {
  return {static_cast<std::size_t>(std::count_if(deviations.begin(), deviations.end(),
                                                 [](const Deviation& one) { return one.agrees; })),
          deviations.size()};
}

void add_agreement(Section& section, const std::vector<Deviation>& deviations, const std::string& word,
                   const std::string& caption) {
  std::map<std::string, std::map<std::string, std::vector<Deviation>>> kernels;  // by kernel and side
  std::vector<std::string> sides;
  for (const Deviation& one : deviations) {
    kernels[one.kernel][one.side].push_back(one);
    if (std::find(sides.begin(), sides.end(), one.side) == sides.end()) sides.push_back(one.side);
  }
  Table table{caption, {{"kernel"}}, {}};
  for (const std::string& side : sides) {
    table.columns.push_back({side});
    table.columns.push_back({"largest", true});
  }
  for (const auto& [kernel, by_side] : kernels) {
    std::vector<std::string> row{kernel};
    for (const std::string& side : sides) {
      const auto found = by_side.find(side);
      if (found == by_side.end()) {
        row.insert(row.end(), {"-", "-"});
        continue;
      }
      const auto largest = std::max_element(
          found->second.begin(), found->second.end(),
          [](const Deviation& a, const Deviation& b) { return std::abs(a.off) < std::abs(b.off); });
      row.push_back(fmt::format("{} in {} cases", word, count_agreeing(found->second).text()));
      row.push_back(percent(largest->off));
    }
    table.rows.push_back(std::move(row));
  }
  if (const Table exceptions = exception_table(deviations); !exceptions.rows.empty()) {
    section.blocks.push_back(exceptions);
  }
  section.blocks.push_back(std::move(table));
}

}  // namespace tilescope
