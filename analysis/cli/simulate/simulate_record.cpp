// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/cli/simulate/simulate.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/replay/simulate_record.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

/// Measured and simulated DRAM bytes of a pass, where both are there.
std::optional<std::vector<std::string>> comparison_row(const RunEntry& run, const PassRecord& pass) {
  if (!pass.measured || !pass.measured->dram_read_bytes || !pass.simulated) return std::nullopt;
  const std::int64_t measured = *pass.measured->dram_read_bytes;
  const double ratio = static_cast<double>(pass.simulated->dram_read_bytes) / static_cast<double>(measured);
  const char* placement = run.pages == PagePlacement::random ? " random pages" : "";
  return {{run.kernel, pass.name, describe(run.problem) + placement,
           format_bytes(static_cast<double>(measured)),
           format_bytes(static_cast<double>(pass.simulated->dram_read_bytes)),
           fmt::format("{:+.1f} %", 100 * (ratio - 1))}};
}

/// A record of this simulation, which measured ones are not changed by.
RunRecord simulation_record(const RunRecord& measured, const SimulateArguments& arguments,
                            const CommandContext& context) {
  RunRecord record = start_record(context.argv);
  record.simulation_of = measured.simulation_of.value_or(
      SimulationSource{arguments.record, measured.argv, measured.when, measured.git, {}});
  record.simulation_of->machine_file = arguments.machine;
  for (const RunEntry& run : measured.runs) record.runs.push_back(without_measurements(run));
  return record;
}

}  // namespace

int simulate_record(const SimulateArguments& arguments, const CommandContext& context) {
  std::error_code ignored;
  if (std::filesystem::equivalent(arguments.record, context.json, ignored)) {
    throw BadInput("--json", context.json, "must be another file than the record, which does not change");
  }
  const Machine machine = load_machine(arguments.machine);
  RunRecord record = read_run_record(arguments.record);
  for (const RunEntry& run : record.runs) find_kernel(run.kernel);  // before any is replayed
  {
    Progress progress(context, "replaying " + arguments.record,
                      static_cast<std::int64_t>(record.runs.size()));
    simulate_side_by_side(record.runs.size(), progress, [&](std::size_t i) {
      RunEntry& run = record.runs[i];
      run = simulate_again(run, find_kernel(run.kernel), machine, {.replay = !arguments.closed_form_only});
    });
  }
  std::vector<std::vector<std::string>> rows = {
      {"kernel", "pass", "DRAM reads of", "measured", "simulated", "off by"}};
  for (const RunEntry& run : record.runs) {
    for (const PassRecord& pass : run.passes) {
      if (auto row = comparison_row(run, pass)) rows.push_back(std::move(*row));
    }
  }
  context.print(
      rows.size() > 1
          ? align_columns(rows, "", {false, false, false, true, true, true})
          : wrapped(fmt::format("{}: no pass has DRAM reads both measured and simulated: nothing to compare",
                                arguments.record)));
  context.write_json(to_json_text(simulation_record(record, arguments, context)));
  return kFine;
}

}  // namespace tilescope::cli
