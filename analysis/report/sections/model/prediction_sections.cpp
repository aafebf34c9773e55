// SPDX-License-Identifier: Apache-2.0
// What the model says of problems that it was not fitted to, and what was simulated before it was measured.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/model/validation/measured_pass.hpp"
#include "analysis/report/document/report_document.hpp"
#include "analysis/report/sections/model/agreement.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sections/speed/roofline_figures.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

constexpr double kTolerance = 0.15;  // of DRAM reads past the floor, as in the section on the fitted passes

/// Passes about which a model can be wrong, the worst first, and how many others there are.
struct Scored {
  std::vector<MeasuredPass> judged;
  std::size_t read_once = 0, at_floor = 0;

  std::size_t within() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        judged, [](const MeasuredPass& pass) { return std::abs(pass.dram_error()) <= kTolerance; }));
  }
  double median() const {
    std::vector<double> errors;
    for (const MeasuredPass& pass : judged) errors.push_back(std::abs(pass.dram_error()));
    std::ranges::sort(errors);
    return errors[errors.size() / 2];
  }
  double worst() const { return judged.front().dram_error(); }
};

Scored score(const std::vector<RunSummary>& runs) {
  Scored scored;
  for (const MeasuredPass& pass : measured_passes(runs)) {
    if (!pass.has_dram()) continue;
    if (pass.reads_once()) {
      ++scored.read_once;
    } else if (!pass.leaves_floor()) {
      ++scored.at_floor;
    } else {
      scored.judged.push_back(pass);
    }
  }
  std::ranges::stable_sort(scored.judged, [](const MeasuredPass& a, const MeasuredPass& b) {
    return std::abs(a.dram_error()) > std::abs(b.dram_error());
  });
  return scored;
}

std::string percent_off(double share) { return fmt::format("{:+.1f} %", 100 * share); }

/// Those beyond the tolerance, or the others.
Table score_table(const Scored& scored, bool failures) {
  Table table{failures ? fmt::format("**Beyond {:.0f} %**, the worst first.", 100 * kTolerance)
                       : fmt::format("Within {:.0f} %.", 100 * kTolerance),
              {{"kernel"},
               {"pass"},
               {"off by", true},
               {"problem"},
               {"measured", true},
               {"smallest ... largest launch", true},
               {"model", true}},
              {}};
  for (const MeasuredPass& pass : scored.judged) {
    if (failures != (std::abs(pass.dram_error()) > kTolerance)) continue;
    const MeasuredBytes& measured = *pass.pass->measured;
    const auto& range = measured.dram_read_range;
    const auto bytes = [](std::int64_t value) { return format_bytes(static_cast<double>(value)); };
    table.rows.push_back(
        {pass.kernel(), pass.pass->name,
         failures ? "**" + percent_off(pass.dram_error()) + "**" : percent_off(pass.dram_error()),
         problem_text(*pass.run), bytes(*measured.dram_read_bytes),
         range ? fmt::format("{} ... {}", bytes((*range)[0]), bytes((*range)[1])) : "-",
         bytes(pass.expected_dram_reads())});
  }
  return table;
}

/// How many numbers those are: every rate of a pass that says something, every group of SMs and its size.
std::size_t count_fitted(const Machine& machine) {
  std::size_t count = 1;  // the L2's size
  for (const auto& [unit, rates] : machine.cta_progress) {
    const ProgressRates &found = rates.value, none;
    count += (found.younger_rate != none.younger_rate) + (found.alone_rate != none.alone_rate) +
             (found.step_cv != none.step_cv) + (found.tpc_cv != none.tpc_cv) +
             (found.clock_cv != none.clock_cv);
  }
  count += machine.l2_ways.has_value() + machine.l2_dirty_ways.has_value();
  return count + (machine.sm_groups ? 2 * machine.sm_groups->value.size() : 0);
}

/// What the model of a machine takes from measurements, each with how it was found.
Bullets fitted_numbers(const Machine& machine) {
  Bullets numbers;
  const auto add = [&numbers](const std::string& name, const std::string& value, const auto& fact) {
    numbers.items.push_back(fmt::format("**{}**: {} ({}). {}", name, value, fact.kind, fact.source));
  };
  for (const auto& [unit, fact] : machine.cta_progress) {
    const ProgressRates& rates = fact.value;
    add("how CTAs on " + unit + " drift apart",
        fmt::format("while the oldest of an SM makes a step, younger ones make {:.2g} and one alone {:.3g}; "
                    "coefficients of variation of steps {:.2g}, of TPCs {:.2g}, of clocks {:.2g}",
                    rates.younger_rate, rates.alone_rate, rates.step_cv, rates.tpc_cv, rates.clock_cv),
        fact);
  }
  add("L2", format_capacity(machine.l2_bytes.value), machine.l2_bytes);
  if (machine.l2_ways) add("lines of a set", std::to_string(machine.l2_ways->value), *machine.l2_ways);
  if (machine.l2_dirty_ways) {
    add("of them dirty at most", std::to_string(machine.l2_dirty_ways->value), *machine.l2_dirty_ways);
  }
  if (machine.sm_groups) {
    add("groups of SMs beside a partition", std::to_string(machine.sm_groups->value.size()),
        *machine.sm_groups);
  }
  return numbers;
}

}  // namespace

std::optional<Section> holdout_section(const std::vector<RunSummary>& runs) {
  const Scored scored = score(runs);
  if (scored.judged.empty()) return std::nullopt;
  std::vector<const RunSummary*> all;
  std::vector<std::string> commands;
  for (const RunSummary& run : runs) {
    all.push_back(&run);
    add_command(commands, *run.record);
  }
  Section section{
      "holdout", with_machines("Predictions for problems to which nothing was fitted", all), {}, true};
  const std::size_t count = scored.judged.size();
  section.blocks.push_back(Paragraph{fmt::format(
      "The model was not fitted to these problems and was not changed for them: each was simulated by the "
      "model of the day on which it was measured. **{} of {} passes are within {:.0f} %** of the measured "
      "DRAM reads, half are within {:.1f} %, and the worst is off by {}. Left out are {} {} "
      "that read every byte once, which any model predicts, and {} whose reads stay at what must be read, "
      "as the model says.",
      scored.within(), count, 100 * kTolerance, 100 * scored.median(), percent_off(scored.worst()),
      scored.read_once, scored.read_once == 1 ? "pass" : "passes", scored.at_floor)});
  for (const bool failures : {true, false}) {
    if (Table table = score_table(scored, failures); !table.rows.empty())
      section.blocks.push_back(std::move(table));
  }
  if (const auto machine = machine_of(runs.front())) {
    section.blocks.push_back(Paragraph{fmt::format(
        "The model takes these numbers from measurements of {}. None was fitted to these problems.",
        machine->title)});
    Bullets numbers = fitted_numbers(*machine);
    numbers.folded_under = fmt::format("{} numbers of {} kinds, each kind with its source",
                                       count_fitted(*machine), numbers.items.size());
    section.blocks.push_back(std::move(numbers));
  }
  section.blocks.push_back(CommandLines{commands});
  return section;
}

std::optional<Finding> model_verdict(const std::vector<RunSummary>& runs,
                                     const std::vector<RunSummary>& holdout) {
  const bool held_out = !score(holdout).judged.empty();
  const Scored scored = score(held_out ? holdout : runs);
  if (scored.judged.empty()) return std::nullopt;
  std::vector<std::string> machines;
  for (const MeasuredPass& pass : scored.judged) add_new(machines, machine_text(*pass.run));
  const std::size_t within = scored.within(), all = scored.judged.size();
  return Finding{
      "Is the model right?",
      {{{{fmt::format("{} of {}", within, all)},
         {percent_off(scored.worst()), "at worst", within == all ? Outcome::good : Outcome::bad}}}},
      fmt::format("**{}** {} of {} passes {} have DRAM reads within {:.0f} % of the measured ones ({}). Half "
                  "are within {:.1f} %.",
                  within == all      ? "Yes."
                  : 2 * within > all ? "Mostly."
                                     : "No.",
                  within, all, held_out ? "to which nothing was fitted" : "(the model was fitted to some)",
                  100 * kTolerance, fmt::join(machines, ", "), 100 * scored.median()),
      within == all      ? Outcome::good
      : 2 * within > all ? Outcome::mixed
                         : Outcome::bad,
      held_out ? "holdout" : "measured"};
}

namespace {

/// A run that was simulated before it was measured.
struct Prediction {
  const RunSummary* predicted = nullptr;
  const RunSummary* measured = nullptr;
};

constexpr const char* kPlainChoice = "row-major, ascending";

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

/// Runs that differ in nothing but their choices, by choice.
using Choices = std::map<std::string, Prediction>;

/// Those whose predictions are older than the measurements, by what they have in common, as they come.
std::vector<Choices> predictions(const std::vector<RunSummary>& runs) {
  std::vector<Choices> groups;
  std::map<std::string, std::size_t> index;
  for (const RunSummary& run : runs) {
    if (!run.simulated_dram || run.measured_dram || run.run->runs_on != "gpu") continue;
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

PredictedChanges predicted_changes(const std::vector<RunSummary>& runs) {
  PredictedChanges changes;
  for (const Choices& choices : predictions(runs)) {
    const auto plain = choices.find(kPlainChoice);
    if (plain == choices.end()) continue;
    const auto log_change = [](const std::optional<ReadWriteBytes>& to,
                               const std::optional<ReadWriteBytes>& from) {
      return std::log(dram_reads(to) / dram_reads(from));
    };
    for (const auto& [name, one] : choices) {
      if (name == kPlainChoice) continue;
      const double measured = log_change(one.measured->measured_dram, plain->second.measured->measured_dram);
      const double predicted =
          log_change(one.predicted->simulated_dram, plain->second.predicted->simulated_dram);
      ++changes.pairs;
      if (std::abs(measured) <= kChange) continue;
      ++changes.changed;
      changes.right += measured * predicted > 0;
    }
  }
  return changes;
}

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
    if (!choices.count(kPlainChoice)) continue;
    for (const auto& [name, one] : choices) {
      if (name != kPlainChoice) add_new(pairs, {kPlainChoice, name});
    }
  }
  section.blocks.push_back(Paragraph{fmt::format(
      "The last prediction was recorded at {}, the first measurement at {}. The predictions are those of the "
      "model at that time; the section on model and measurement compares the model of today.",
      last_when, first_when)});
  for (const auto& [first, second] : pairs) section.blocks.push_back(prediction_table(groups, first, second));
  section.title = with_machines(section.title, machines);
  section.blocks.push_back(CommandLines{reproduction(commands)});
  return section;
}

}  // namespace tilescope
