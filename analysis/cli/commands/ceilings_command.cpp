// SPDX-License-Identifier: Apache-2.0
// `tilescope ceilings`: what this machine can do at best, as a table, a record and a machine file for the
// models.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <tuple>

#include "analysis/cli/command.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/machine/machine.hpp"
#include "analysis/model/validation/noise_floor_bytes.hpp"
#include "analysis/records/ceilings_record.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/records/run_record.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

struct CeilingsArguments {
  std::string base = "h200";
  std::string out;
  bool links = false;
  std::string from;  // a record to make the machine file of instead of measuring; empty: none
};

Table as_table(const Ceilings& measured) {
  std::vector<Row> rows = {{"ceiling", "best", "median", "noise", "SM clock", "how"}};
  for (const MeasuredCeiling& ceiling : measured.ceilings) {
    const std::string unit = ceiling.unit == "byte/s" ? "B/s" : "FLOP/s";
    rows.push_back(
        {ceiling.name,
         as_number(fmt::format("{:.2f} T{}", 1e-12 * ceiling.per_second, unit), ceiling.per_second, unit),
         as_number(fmt::format("{:.2f}", 1e-12 * ceiling.median_per_second), ceiling.median_per_second, unit),
         as_percent(ceiling.noise, 2),
         as_number(fmt::format("{:.0f} MHz", 1e-6 * ceiling.sm_clock_hz), ceiling.sm_clock_hz, "Hz"),
         ceiling.method});
  }
  return {rows};
}

Cell capacity(std::int64_t bytes) {
  return as_number(format_capacity(bytes), static_cast<double>(bytes), "B");
}

/// A row for each footprint, a column for each access.
Output l2_table(const Ceilings& measured) {
  std::vector<std::string> accesses;
  std::map<std::int64_t, std::map<std::string, double>> kept;
  for (const L2Residency& point : measured.l2) {
    if (kept.empty() || point.access != accesses.back()) accesses.push_back(point.access);
    kept[point.footprint_bytes][point.access] = point.kept;
  }
  if (accesses.empty()) return {};
  std::vector<Row> rows = {{"kept in L2"}};
  rows.front().insert(rows.front().end(), accesses.begin(), accesses.end());
  for (const auto& [footprint, by_access] : kept) {
    rows.push_back({capacity(footprint)});
    for (const std::string& access : accesses) {
      const auto share = by_access.find(access);
      rows.back().push_back(share == by_access.end() ? Cell("-") : as_percent(share->second));
    }
  }
  std::string halves;
  for (const std::string& access : accesses) {
    halves += fmt::format("{}{} {}", halves.empty() ? "half is kept of: " : ", ", access,
                          format_capacity(half_kept_bytes(measured.l2, access)));
  }
  return Table{.rows = rows,
               .title = fmt::format("\nL2 of {}: what the next pass over a footprint finds in it",
                                    format_capacity(measured.l2_bytes))} +
         Output(wrapped(halves));
}

Output partitions_table(const L2Partitions& partitions) {
  if (partitions.groups.empty()) return {};
  std::vector<Row> rows = {{"CTAs", "SMs", "partition"}};
  int first = 0;
  for (const SmGroup& group : partitions.groups) {
    rows.push_back({fmt::format("{} ... {}", first, first + group.sms - 1), as_count(group.sms),
                    as_count(group.partition)});
    first += group.sms;
  }
  return Table{.rows = rows,
               .title = "\nthe partition of the L2 beside which each CTA of a grid of one CTA an SM runs"};
}

Output noise_floor_table(const std::vector<NoiseFloor>& noise_floor) {
  if (noise_floor.empty()) return {};
  Table table{.title = "\nread from DRAM by the device itself, by what it does meanwhile"};
  for (const std::vector<std::string>& row : noise_floor_rows(noise_floor))
    table.rows.emplace_back(row.begin(), row.end());
  return table;
}

/// A row for each size and number of CTAs, a column for each engine.
Output link_table(const std::vector<LinkCeiling>& links) {
  if (links.empty()) return {};
  const char* const engines[] = {kCopyEngine, kSmLoads, kSmStores};
  std::vector<Row> rows = {{"moved", "CTAs", "ways"}};
  rows.front().insert(rows.front().end(), std::begin(engines), std::end(engines));
  std::map<std::tuple<bool, int, std::int64_t>, std::map<std::string, double>> rates;
  for (const LinkCeiling& link : links)
    rates[{link.both_ways, link.ctas, link.bytes}][link.engine] = link.per_second;
  for (const auto& [key, by_engine] : rates) {
    const auto& [both_ways, ctas, bytes] = key;
    rows.push_back({capacity(bytes), ctas == 0 ? Cell("-") : as_count(ctas), both_ways ? "both" : "one"});
    for (const char* const engine : engines) {
      const auto rate = by_engine.find(engine);
      rows.back().push_back(rate == by_engine.end()
                                ? Cell("-")
                                : as_number(fmt::format("{:.1f}", 1e-9 * rate->second), rate->second, "B/s"));
    }
  }
  return Table{.rows = rows, .title = "\nlink between two GPUs, one direction [GB/s]"};
}

int run_ceilings(const CeilingsArguments& arguments, const CommandContext& context) {
  std::optional<Machine> base;
  if (!arguments.out.empty()) {
    base = load_machine(arguments.base);
    require_writable_file("--out", arguments.out);
  }
  const CeilingsRecord record =
      arguments.from.empty()
          ? CeilingsRecord{context.argv, utc_now(),
                           measure_ceilings(arguments.links ? CeilingChoice::links : CeilingChoice::all)}
          : parse_ceilings_record(arguments.from, read_text_file(arguments.from));
  context.print(Output(as_table(record.measured)) + l2_table(record.measured) +
                partitions_table(record.measured.l2_partitions) +
                noise_floor_table(record.measured.noise_floor) + link_table(record.measured.links));
  for (const std::string& reason : record.measured.left_out) context.print("left out: " + reason + "\n");
  if (base) {
    const Machine machine = measured_machine(*base, record);
    const bool ships_base = !arguments.base.ends_with(".json");
    write_file_atomically("--out", arguments.out,
                          ships_base ? to_json_text(machine, *base) : to_json_text(machine));
    context.print(
        fmt::format("{}: a machine for simulate and report (--machine {})\n", arguments.out, arguments.out));
  }
  if (arguments.from.empty()) context.write_json(to_json_text(record));
  return kFine;
}

}  // namespace

void add_ceilings_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<CeilingsArguments>();
  CLI::App& command =
      add_command(app, context, "ceilings", "measured bandwidth and math peaks of this machine",
                  [arguments, &context] { return run_ceilings(*arguments, context); });
  add_value(command, "--machine", arguments->base, "MACHINE|FILE.json",
            "machine that gives what is not measured (h200)");
  command.add_flag("--links", arguments->links, "measure the links between two GPUs only");
  add_value(command, "--from", arguments->from, "RECORD.json",
            "instead of measuring: the ceilings of a record");
  add_value(command, "--out", arguments->out, "FILE.json", "write a machine file with the measured ceilings");
  add_format_option(command, context);
  show_examples(command, {{"ceilings --json ceilings.json", "what this device reaches, in a record"},
                          {"ceilings --from ceilings.json --out my-gpu.json",
                           "a machine file from it, for simulate --machine"}});
}

}  // namespace tilescope::cli
