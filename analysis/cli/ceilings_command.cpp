// SPDX-License-Identifier: Apache-2.0
// `tilescope ceilings`: what this machine can do at best, as a table, a record and a machine file for the
// models.
#include "profiler/ceilings.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/atomic_file.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/json_fields.hpp"
#include "analysis/machine.hpp"
#include "analysis/output_path.hpp"
#include "analysis/report_format.hpp"
#include "analysis/run_record.hpp"

namespace tilescope::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "tilescope.ceilings/1";

struct CeilingsArguments {
  std::string base = "h200";
  std::string out;
  std::string from;  // a record to make the machine file of instead of measuring; empty: none
};

/// The base machine with what was measured in the place of what is said of it.
Machine measured_machine(Machine machine, const Ceilings& measured, const std::string& when) {
  machine.name += "-measured";
  machine.title = measured.device + ", ceilings measured " + when;
  for (const Ceiling& ceiling : measured.ceilings) {
    const Fact<double> fact{
        ceiling.per_second,
        fmt::format("tilescope ceilings, {}: {}; fastest run, mean SM clock of all {:.0f} MHz", when,
                    ceiling.method, 1e-6 * ceiling.sm_clock_hz),
        "measured"};
    if (ceiling.name == "dram_copy") machine.dram_bytes_per_second = fact;
    if (ceiling.name == "sm_l2_read") machine.l2_bytes_per_second = fact;
    if (ceiling.unit == "flop/s") machine.peak_flops_per_second[ceiling.name] = fact;
    if (ceiling.name == "fp8e4m3") machine.peak_flops_per_second["fp8e5m2"] = fact;
  }
  return machine;
}

Json record_json(const Ceilings& measured, const std::string& when, const CommandContext& context) {
  Json rows = Json::array();
  for (const Ceiling& ceiling : measured.ceilings) {
    rows.push_back({{"name", ceiling.name},
                    {"unit", ceiling.unit},
                    {"per_second", ceiling.per_second},
                    {"median_per_second", ceiling.median_per_second},
                    {"noise", ceiling.noise},
                    {"sm_clock_hz", ceiling.sm_clock_hz},
                    {"method", ceiling.method}});
  }
  Json l2 = Json::array();
  for (const L2Residency& point : measured.l2) {
    l2.push_back(
        {{"access", point.access}, {"footprint_bytes", point.footprint_bytes}, {"kept", point.kept}});
  }
  return {{"schema", kSchema},
          {"argv", context.argv},
          {"when", when},
          {"machine",
           {{"name", measured.device}, {"architecture", measured.architecture}, {"driver", measured.driver}}},
          {"ceilings", std::move(rows)},
          {"l2_bytes", measured.l2_bytes},
          {"l2", std::move(l2)},
          {"left_out", measured.left_out}};
}

Ceilings read_record(const std::string& path, std::string& when) {
  const std::string text = read_text_file(path);
  try {
    const Json json = Json::parse(text);
    const std::string schema = json.at("schema").get<std::string>();
    if (schema != kSchema) throw BadInput(path + ": schema", schema, std::string("must be ") + kSchema);
    when = json.at("when").get<std::string>();
    const Json& machine = json.at("machine");
    Ceilings measured;
    measured.device = machine.at("name").get<std::string>();
    measured.architecture = machine.at("architecture").get<std::string>();
    measured.driver = machine.at("driver").get<std::string>();
    for (const Json& row : json.at("ceilings")) {
      measured.ceilings.push_back({row.at("name").get<std::string>(), row.at("unit").get<std::string>(),
                                   row.at("per_second").get<double>(),
                                   row.at("median_per_second").get<double>(), row.at("noise").get<double>(),
                                   row.at("sm_clock_hz").get<double>(), row.at("method").get<std::string>()});
    }
    measured.l2_bytes = json.value("l2_bytes", std::int64_t{0});  // records without them are older
    for (const Json& point : json.value("l2", Json::array())) {
      measured.l2.push_back({point.at("access").get<std::string>(),
                             point.at("footprint_bytes").get<std::int64_t>(),
                             point.at("kept").get<double>()});
    }
    return measured;
  } catch (const Json::exception& error) {
    throw BadInput(path + " is no record of ceilings: " + error.what());
  }
}

std::string as_table(const Ceilings& measured) {
  std::vector<std::vector<std::string>> rows = {{"ceiling", "best", "median", "noise", "SM clock", "how"}};
  for (const Ceiling& ceiling : measured.ceilings) {
    const bool bytes = ceiling.unit == "byte/s";
    rows.push_back({ceiling.name,
                    fmt::format("{:.2f} {}", 1e-12 * ceiling.per_second, bytes ? "TB/s" : "TFLOP/s"),
                    fmt::format("{:.2f}", 1e-12 * ceiling.median_per_second),
                    fmt::format("{:.2f} %", 100 * ceiling.noise),
                    fmt::format("{:.0f} MHz", 1e-6 * ceiling.sm_clock_hz), ceiling.method});
  }
  return align_columns(rows, "", {false, true, true, true, true});
}

/// A row for each footprint, a column for each access.
std::string l2_table(const Ceilings& measured) {
  std::vector<std::string> accesses;
  std::map<std::int64_t, std::map<std::string, double>> kept;
  for (const L2Residency& point : measured.l2) {
    if (kept.empty() || point.access != accesses.back()) accesses.push_back(point.access);
    kept[point.footprint_bytes][point.access] = point.kept;
  }
  if (accesses.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"kept in L2"}};
  rows.front().insert(rows.front().end(), accesses.begin(), accesses.end());
  for (const auto& [footprint, by_access] : kept) {
    rows.push_back({format_capacity(footprint)});
    for (const std::string& access : accesses) {
      rows.back().push_back(fmt::format("{:.1f} %", 100 * by_access.at(access)));
    }
  }
  rows.push_back({"half is kept of"});
  for (const std::string& access : accesses) {
    rows.back().push_back(format_capacity(half_kept_bytes(measured.l2, access)));
  }
  return fmt::format("\nL2 of {}: what the next pass over a footprint finds in it\n{}",
                     format_capacity(measured.l2_bytes), align_columns(rows, "", {true, true, true, true}));
}

int run_ceilings(const CeilingsArguments& arguments, const CommandContext& context) {
  std::optional<Machine> base;
  if (!arguments.out.empty()) {
    base = load_machine(arguments.base);
    require_writable_file("--out", arguments.out);
  }
  std::string when = utc_now();
  const Ceilings measured = arguments.from.empty() ? measure_ceilings() : read_record(arguments.from, when);
  context.print(as_table(measured) + l2_table(measured));
  for (const std::string& reason : measured.left_out) context.print("left out: " + reason + "\n");
  if (base) {
    const Machine machine = measured_machine(*base, measured, when);
    write_file_atomically("--out", arguments.out, to_json_text(machine));
    context.print(
        fmt::format("{}: a machine for simulate and report (--machine {})\n", arguments.out, arguments.out));
  }
  if (arguments.from.empty()) context.write_json(record_json(measured, when, context).dump(1) + "\n");
  return kFine;
}

}  // namespace

void add_ceilings_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<CeilingsArguments>();
  CLI::App& command =
      add_command(app, context, "ceilings", "measured bandwidth and math peaks of this machine",
                  [arguments, &context] { return run_ceilings(*arguments, context); });
  command.add_option("--machine", arguments->base, "machine that gives what is not measured (h200)")
      ->type_name("NAME|FILE.json");
  command.add_option("--from", arguments->from, "instead of measuring: the ceilings of a record")
      ->type_name("RECORD.json");
  command.add_option("--out", arguments->out, "write a machine file with the measured ceilings")
      ->type_name("FILE.json");
}

}  // namespace tilescope::cli
