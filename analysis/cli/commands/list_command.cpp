// SPDX-License-Identifier: Apache-2.0
// `tilescope list`: what the names on the command line may be.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/cli/command.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/tables/text_table.hpp"
#include "analysis/machine/machine.hpp"
#include "analysis/records/record_metrics.hpp"
#include "analysis/studies/bench_sweeps.hpp"
#include "analysis/studies/study.hpp"
#include "common/nearest_names.hpp"
#include "common/number_format.hpp"
#include "cpu_ref/schedule/problem.hpp"
#include "profiler/counters/metric_sets.hpp"

namespace tilescope::cli {
namespace {

struct Entry {
  std::string name;
  std::string detail;   // the exact facts, in a column
  std::string summary;  // one line
  /// Facts with a column each, by its heading, in place of the detail. The same for all entries of a
  /// catalogue.
  std::vector<std::pair<std::string, std::string>> columns = {};
};

/// "standard", "flash2, backward fused|split|rows"
std::string kernel_detail(const Kernel& kernel) {
  std::string text(to_string(kernel.algorithm));
  for (BackwardOrder order : kernel.backward_orders) {
    text +=
        fmt::format("{}{}", order == kernel.backward_orders.front() ? ", backward " : "|", to_string(order));
  }
  return text;
}

/// "sm_80 and newer"
std::string chips_of(const Kernel& kernel) {
  if (!kernel.launch_shape) return "CPU";
  const auto [first, last] = kernel.chips;
  if (first == last) return fmt::format("sm_{}", first);
  return last == ChipRange{}.last ? fmt::format("sm_{} and newer", first)
                                  : fmt::format("sm_{} ... sm_{}", first, last);
}

/// What a kernel's row says that it can.
std::vector<std::pair<std::string, std::string>> kernel_columns(const Kernel& kernel) {
  const Capabilities& can = kernel.can;
  const auto types = [](const FeatureSet& features) {
    return features.empty() ? "-" : element_types_of(features, " ", " ");
  };
  std::vector<std::pair<std::string, std::string>> columns = {
      {"rung", kernel.rung == 0 ? "-" : std::to_string(kernel.rung)},
      {"forward", types(can.forward)},
      {"backward", types(can.backward)},
      {"head_dim", can.head_dims.empty() ? "any" : fmt::format("{}", fmt::join(can.head_dims, " "))}};
  for (int i = static_cast<int>(std::size(kElementTypes)); i < kNumFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    const bool forward = can.forward.has(feature),
               backward = can.backward.has(feature) || can.backward.empty();
    columns.emplace_back(to_string(feature), forward && backward ? "yes" : forward ? "forward" : "-");
  }
  std::vector<std::string_view> orders;
  for (const BackwardOrder order : kernel.backward_orders) orders.push_back(to_string(order));
  columns.emplace_back("runs on", chips_of(kernel));
  columns.emplace_back("backward orders", orders.empty() ? "-" : fmt::format("{}", fmt::join(orders, " ")));
  return columns;
}

std::vector<Entry> list_kernels() {
  std::vector<Entry> entries;
  for (const Kernel* kernel : all_kernels()) {
    entries.push_back({std::string(kernel->name), kernel_detail(*kernel), std::string(kernel->summary),
                       kernel_columns(*kernel)});
  }
  return entries;
}

std::vector<Entry> list_problems() {
  std::vector<Entry> entries;
  for (const Preset& preset : presets()) {
    entries.push_back({std::string(preset.name), describe(preset.problem), std::string(preset.summary)});
  }
  return entries;
}

std::vector<Entry> list_studies() {
  std::vector<Entry> entries;
  for (const Study& study : studies()) {
    const std::string where = study.default_machine.empty() ? "this CPU" : std::string(study.default_machine);
    entries.push_back({std::string(study.name), where, std::string(study.summary)});
  }
  return entries;
}

std::vector<Entry> list_sweeps() {
  std::vector<Entry> entries;
  for (const BenchSweep& sweep : bench_sweeps()) {
    entries.push_back({std::string(sweep.name), fmt::format("{} problems", sweep.problems().size()),
                       std::string(sweep.summary)});
  }
  return entries;
}

std::vector<Entry> list_machines() {
  std::vector<Entry> entries;
  for (const std::string& name : machine_names()) {
    const Machine machine = load_machine(name);
    entries.push_back({name,
                       fmt::format("{} {} SMs, L2 {}, DRAM {}/s", machine.chip, machine.sm_count.value,
                                   format_capacity(machine.l2_bytes.value),
                                   format_bytes(machine.dram_bytes_per_second.value)),
                       machine.title});
  }
  return entries;
}

std::vector<Entry> list_metrics() {
  std::vector<Entry> entries;
  for (const RecordMetric& metric : record_metrics()) {
    const std::string unit = metric.unit.empty() ? "1" : std::string(metric.unit);
    entries.push_back({metric.name(), fmt::format("[{}] may grow {:g} %", unit, 100 * metric.budget.amount),
                       std::string(metric.summary)});
  }
  return entries;
}

/// What `profile --metrics` takes: sets, then single metrics with the counters they are computed from.
std::vector<Entry> list_counters() {
  std::vector<Entry> entries;
  for (const MetricSet& set : metric_sets()) {
    entries.push_back(
        {std::string(set.name), fmt::format("set of {}", set.metrics.size()), std::string(set.summary)});
  }
  for (const Metric& metric : all_metrics()) {
    const std::string formula = to_string(metric.formulas.front());
    entries.push_back({std::string(metric.name), fmt::format("[{}]", metric.unit),
                       metric.caveat.empty() ? formula : fmt::format("{}; {}", formula, metric.caveat)});
  }
  return entries;
}

struct Catalogue {
  std::string name;
  std::vector<Entry> (*entries)();
};

const std::vector<Catalogue>& catalogues() {
  static const std::vector<Catalogue> all = {{"counters", list_counters}, {"kernels", list_kernels},
                                             {"machines", list_machines}, {"metrics", list_metrics},
                                             {"problems", list_problems}, {"studies", list_studies},
                                             {"sweeps", list_sweeps}};
  return all;
}

const Catalogue& find_catalogue(const std::string& name) {
  std::vector<std::string> names;
  for (const Catalogue& catalogue : catalogues()) {
    if (catalogue.name == name) return catalogue;
    names.push_back(catalogue.name);
  }
  throw unknown_name("list", name, names);
}

std::string as_table(const std::vector<Entry>& entries) {
  std::vector<std::vector<std::string>> rows, facts;
  for (const Entry& entry : entries) {
    if (entry.columns.empty()) {
      rows.push_back({entry.name, entry.detail, entry.summary});
      continue;
    }
    rows.push_back({entry.name, entry.summary});
    if (facts.empty()) {
      facts.push_back({""});
      for (const auto& [heading, fact] : entry.columns) facts.back().push_back(heading);
    }
    facts.push_back({entry.name});
    for (const auto& [heading, fact] : entry.columns) facts.back().push_back(fact);
  }
  return align_columns(rows) + (facts.empty() ? "" : "\n" + align_columns(facts));
}

std::string as_json(const Catalogue& catalogue, const std::vector<Entry>& entries) {
  auto rows = nlohmann::ordered_json::array();
  for (const Entry& entry : entries) {
    rows.push_back({{"name", entry.name}, {"detail", entry.detail}, {"summary", entry.summary}});
    for (const auto& [heading, fact] : entry.columns) rows.back()[heading] = fact;
  }
  return nlohmann::ordered_json{{catalogue.name, rows}}.dump(2) + "\n";
}

}  // namespace

void add_list_command(CLI::App& app, CommandContext& context) {
  const auto what = std::make_shared<std::string>();
  CLI::App& command = add_command(app, context, "list", "the names that options take", [what, &context] {
    const Catalogue& catalogue = find_catalogue(*what);
    const std::vector<Entry> entries = catalogue.entries();
    context.print(as_table(entries));
    context.write_json(as_json(catalogue, entries));
    return kFine;
  });
  std::string choices;
  for (const Catalogue& catalogue : catalogues()) choices += (choices.empty() ? "" : "|") + catalogue.name;
  command.add_option("what", *what, "which names")->type_name(choices);
}

}  // namespace tilescope::cli
