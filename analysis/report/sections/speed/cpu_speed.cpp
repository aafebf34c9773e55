// SPDX-License-Identifier: Apache-2.0
// What takes how long on the CPU: the kernels that `bench` timed, a row a run, and simulations.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/document/report_document.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// The counter of a run's first pass, or nothing.
std::optional<double> counter(const RunSummary& run, const char* name) {
  const auto& counters = run.passes.front()->counters;
  const auto found = counters.find(name);
  if (found == counters.end()) return std::nullopt;
  return std::visit([](auto value) { return static_cast<double>(value); }, found->second);
}

constexpr const char* kProductRate = "sgemm_flops_per_second";

bool timed_on_cpu(const RunSummary& run) { return run.median_seconds && run.run->runs_on == "cpu"; }

double cpu_rate(const RunSummary& run) { return static_cast<double>(run.useful_flops) / *run.median_seconds; }

}  // namespace

std::optional<Finding> cpu_speed_verdict(const std::vector<RunSummary>& runs) {
  const RunSummary* fastest = nullptr;
  double best = 0;
  for (const RunSummary& run : runs) {
    if (!timed_on_cpu(run)) continue;
    const std::optional<double> product_rate = counter(run, kProductRate);
    const double share = product_rate ? cpu_rate(run) / *product_rate : 0;
    if (share > best) {
      best = share;
      fastest = &run;
    }
  }
  if (!fastest) return std::nullopt;
  return Finding{
      "How fast are they?",
      {{{{fmt::format("{:.0f} %", 100 * best), "of sgemm"}}}},
      fmt::format("`{}` reaches {:.0f} % of the rate of a single-precision matrix product on the same "
                  "threads: {}, {}, {}.",
                  fastest->run->kernel, 100 * best, problem_text(*fastest), to_string(fastest->direction),
                  machine_text(*fastest)),
      Outcome::informational,
      "speed"};
}

std::optional<Section> speed_section(const std::vector<RunSummary>& runs) {
  Table table{"",
              {{"problem"},
               {"pass"},
               {"kernel"},
               {"tile"},
               {"threads", true},
               {"median", true},
               {"noise", true},
               {"rate", true},
               {"of sgemm", true}},
              {}};
  std::vector<std::string> machines, commands;
  for (const RunSummary& run : runs) {
    if (!timed_on_cpu(run)) continue;
    const double rate = cpu_rate(run);
    double noise = 0;
    for (const PassRecord* pass : run.passes) noise = std::max(noise, pass->time->noise);
    const std::optional<double> threads = counter(run, "threads");
    const std::optional<double> product_rate = counter(run, kProductRate);
    table.rows.push_back({problem_text(run), std::string(to_string(run.direction)), run.label,
                          to_string(run.tile), threads ? format_number(*threads) : "-",
                          format_seconds(*run.median_seconds), fmt::format("{:.1f} %", 100 * noise),
                          format_flops(rate) + "/s",
                          product_rate ? fmt::format("{:.1f} %", 100 * rate / *product_rate) : "-"});
    add_new(machines, run.record->machine.cpu.value_or("unknown"));
    add_command(commands, *run.record);
  }
  if (table.rows.empty()) return std::nullopt;
  return Section{
      "speed",
      with_machines("Speed on a CPU", machines),
      {Paragraph{fmt::format("On {}. The rate counts useful FLOP: 2 products forward and 5 backward over "
                             "the visible pairs. The last column is its share of the rate of a "
                             "single-precision matrix product by a BLAS library, on the same threads in the "
                             "same run.",
                             fmt::join(machines, ", "))},
       table, CommandLines{reproduction(commands)}}};
}

std::optional<Section> simulation_speed_section(const std::vector<RunRecord>& records) {
  Section section{"simulation-speed", "What a simulation takes", {}};
  Table table{"", {{"problem"}, {"kernel"}, {"model"}, {"on"}, {"time", true}, {"memory", true}}, {}};
  std::vector<std::string> commands;
  for (const RunRecord& record : records) {
    if (!record.cost || record.runs.size() != 1) continue;
    const RunEntry& run = record.runs.front();
    if (run.passes.empty() || !run.passes.front().simulated) continue;
    table.rows.push_back({describe(run.problem), run.kernel, run.passes.front().simulated->machine,
                          fmt::format("{}, {} threads", record.machine.cpu.value_or("unknown"),
                                      record.machine.threads.value_or(1)),
                          format_seconds(record.cost->elapsed_s),
                          format_bytes(static_cast<double>(record.cost->peak_memory_bytes))});
    add_command(commands, record);
  }
  if (table.rows.empty()) return std::nullopt;
  section.blocks.push_back(std::move(table));
  section.blocks.push_back(CommandLines{reproduction(commands)});
  return section;
}

}  // namespace tilescope
