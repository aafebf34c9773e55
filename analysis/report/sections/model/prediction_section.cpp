// SPDX-License-Identifier: Apache-2.0
// Orders of the grid and of the tiles, simulated in one record and measured in a later one.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/report/document/add_new.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// A run that was simulated before it was measured.
struct Prediction {
  const RunSummary* predicted = nullptr;
  const RunSummary* measured = nullptr;
};

/// "longest-first, sawtooth"
std::string choice_text(const RunEntry& run) {
  return fmt::format("{}, {}", to_string(run.order.value_or(TileOrder::row_major)),
                     to_string(run.scan.value_or(Scan::ascending)));
}

std::string key_text(const RunSummary& run) {
  AttentionProblem problem = run.problem();
  problem.seed = 0;
  return fmt::format("{} {} {} {} {}", run.run->kernel, to_string(run.direction), to_string(run.tile),
                     describe(problem), to_string(run.run->pages));
}

/// Of runs that differ in nothing but their choices: by choice.
using Choices = std::map<std::string, Prediction>;

/// Those whose predictions are older than the measurements, by what they have in common, as they come.
std::vector<Choices> predictions(const std::vector<RunSummary>& runs) {
  std::vector<Choices> groups;
  std::map<std::string, std::size_t> index;
  for (const RunSummary& run : runs) {
    if (!run.simulated_dram || run.measured_dram || !run.run->kernel.starts_with("gpu:")) continue;
    const auto [place, added] = index.try_emplace(key_text(run), groups.size());
    if (added) groups.emplace_back();
    groups[place->second][choice_text(*run.run)].predicted = &run;
  }
  for (const RunSummary& run : runs) {
    const auto group = index.find(key_text(run));
    if (!run.measured_dram || group == index.end()) continue;
    const auto choice = groups[group->second].find(choice_text(*run.run));
    if (choice == groups[group->second].end() || choice->second.predicted->record->when >= run.record->when) {
      continue;
    }
    choice->second.measured = &run;
  }
  for (Choices& choices : groups) {
    std::erase_if(choices, [](const auto& choice) { return choice.second.measured == nullptr; });
  }
  std::erase_if(groups, [](const Choices& choices) { return choices.size() < 2; });
  return groups;
}

double dram_reads(const std::optional<ReadWriteBytes>& bytes) {
  return static_cast<double>(bytes->read_bytes);
}

Table prediction_table(const std::vector<Choices>& groups, const std::string& first,
                       const std::string& second) {
  Table table{fmt::format("DRAM reads with the choices **{}** and **{}**.", first, second),
              {{"kernel"},
               {"problem"},
               {"predicted", true},
               {"measured", true},
               {"off by", true},
               {"predicted", true},
               {"measured", true},
               {"off by", true},
               {"change predicted", true},
               {"measured", true},
               {"time", true}},
              {}};
  for (const Choices& choices : groups) {
    const auto a = choices.find(first), b = choices.find(second);
    if (a == choices.end() || b == choices.end()) continue;
    const RunSummary& run = *a->second.measured;
    std::vector<std::string> row{fmt::format("{} {}", run.run->kernel, to_string(run.direction)),
                                 problem_text(run)};
    double predicted[2], measured[2];
    int i = 0;
    for (const Prediction* one : {&a->second, &b->second}) {
      predicted[i] = dram_reads(one->predicted->simulated_dram);
      measured[i] = dram_reads(one->measured->measured_dram);
      row.push_back(format_bytes(predicted[i]));
      row.push_back(format_bytes(measured[i]));
      row.push_back(fmt::format("{:+.1f} %", 100 * (predicted[i] / measured[i] - 1)));
      ++i;
    }
    row.push_back(format_ratio(predicted[1] / predicted[0]));
    row.push_back(format_ratio(measured[1] / measured[0]));
    const auto before = run.median_seconds, after = b->second.measured->median_seconds;
    row.push_back(before && after ? fmt::format("{:+.1f} %", 100 * (*after / *before - 1)) : "-");
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::optional<Section> prediction_section(const std::vector<RunSummary>& runs) {
  const std::vector<Choices> groups = predictions(runs);
  if (groups.empty()) return std::nullopt;
  Section section{"predictions", "Predicted before it was measured", {}};
  std::vector<std::string> commands;
  std::string first_when, last_when;
  std::vector<std::string> machines;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Choices& choices : groups) {
    for (const auto& [name, one] : choices) {
      add_command(commands, *one.predicted->record);
      add_command(commands, *one.measured->record);
      add_new(machines, machine_text(*one.measured));
      last_when = std::max(last_when, one.predicted->record->when);
      if (first_when.empty() || one.measured->record->when < first_when)
        first_when = one.measured->record->when;
    }
    // The plain choice first: the others are what it is to be improved by.
    const std::string plain = "row-major, ascending";
    if (!choices.count(plain)) continue;
    for (const auto& [name, one] : choices) {
      if (name != plain) add_new(pairs, {plain, name});
    }
  }
  section.blocks.push_back(Paragraph{fmt::format(
      "The last prediction was recorded at {}, the first measurement at {}. Predictions stand as the model "
      "of their day made them; what the model says now is compared in the section on model and measurement.",
      last_when, first_when)});
  for (const auto& [first, second] : pairs) section.blocks.push_back(prediction_table(groups, first, second));
  section.title = with_machines(section.title, machines);
  section.blocks.push_back(CommandLines{reproduction(commands)});
  return section;
}

}  // namespace tilescope
