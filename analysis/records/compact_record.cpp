// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/compact_record.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "analysis/records/distributed_record.hpp"
#include "analysis/records/json/json_fields.hpp"
#include "analysis/records/run_record.hpp"
#include "profiler/records/json_tables.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope {
namespace {

constexpr int kTimeDigits = 9;    // nanoseconds of a second: of fewer, other ones may be printed than of all
constexpr int kRateDigits = 6;    // of clocks and shares
constexpr int kSpreadDigits = 3;  // of how times spread
constexpr int kErrorDigits = 5;   // rounded up: an error is held to its bound, and a later one to this one

double printed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return std::strtod(text, nullptr);
}

double to_digits(double value, int digits, bool up) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double nearest = printed(value, digits);
  if (!up || nearest >= value) return nearest;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - digits + 1);
  return std::max(value, printed(nearest + unit, digits));
}

/// All numbers of a part but its integers.
void round_numbers(Json& part, int digits, bool up) {
  if (part.is_number_float()) part = to_digits(part.get<double>(), digits, up);
  if (!part.is_structured()) return;
  for (Json& value : part) round_numbers(value, digits, up);
}

void shorten_time(Json& time) {
  for (auto& [key, value] : time.items()) {
    const bool is_time = key == "median_s" || key == "min_s";
    round_numbers(value, is_time ? kTimeDigits : key == "noise" ? kSpreadDigits : kRateDigits, false);
  }
  if (!time.contains("samples_s")) return;
  time["samples"] = time["samples_s"].size();
  time.erase("samples_s");
}

/// Counters that say in sectors, or of clocks, what `measured` and `time` say of a pass.
constexpr const char* kToldElsewhere[] = {
    "dram__cycles_elapsed.avg.per_second",
    "sm__cycles_elapsed.avg.per_second",
    "smsp__inst_executed.sum",
    "lts__d_sectors_fill_device.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "dram__bytes_write.sum",
};

/// Of a measured pass the counters that say more than `measured`.
void shorten_measured(Json& pass) {
  if (!pass.contains("measured") || !pass.contains("counters")) return;
  for (const char* counter : kToldElsewhere) pass["counters"].erase(counter);
  if (pass["counters"].empty()) pass.erase("counters");
}

/// The model's bytes at the one size of L2 that was asked for: of a pass that was measured with one, and of
/// an order or scan that was named to see what it saves. Curves are drawn of kernels as they are.
void leave_out_curve(Json& pass, const Json& run) {
  const bool drawn = !pass.contains("measured") && !run.contains("order") && !run.contains("scan");
  if (!drawn && pass.contains("simulated")) pass["simulated"].erase("l2_curve");
}

/// Of a launch what no reader of runs asks for: of a measured one its threads, of another nothing.
void shorten_launch(Json& pass) {
  if (!pass.contains("launch")) return;
  pass["launch"].erase("registers");
  pass["launch"].erase("shared_bytes");
  if (!pass.contains("measured")) pass.erase("launch");
}

/// Of a pass of a run, or a kernel's launch.
void shorten_pass(Json& pass) {
  if (pass.contains("time")) shorten_time(pass["time"]);
  for (const char* key : {"counters", "measured", "simulated"}) {
    if (pass.contains(key)) round_numbers(pass[key], kRateDigits, false);
  }
}

/// Counts of a pass that was only run to be judged: they follow from problem and tile.
void leave_out_counts(Json& pass) {
  if (pass.contains("time") || pass.contains("measured") || pass.contains("simulated")) return;
  for (const char* count : {"closed_form", "flops", "executed_flops"}) pass.erase(count);
}

/// Errors are judged by their bounds; how many units of the last place they are is for who looks on.
void shorten_errors(Json& run) {
  for (const char* key : {"error", "mirror_error", "repeats"}) {
    if (!run.contains(key)) continue;
    round_numbers(run[key], kErrorDigits, true);
    for (Json& tensor : run[key]) tensor.erase("max_ulp");
  }
}

void shorten_run(Json& run) {
  shorten_errors(run);
  for (Json& pass : run["passes"]) {
    shorten_pass(pass);
    shorten_launch(pass);
    shorten_measured(pass);
    leave_out_curve(pass, run);
    if (run.contains("error") && !run["error"].empty()) leave_out_counts(pass);
  }
}

/// Of somebody's kernel the clocks, and the sectors behind its bytes.
void shorten_kernel(Json& kernel) {
  shorten_pass(kernel);
  for (const char* metric : {"dram_clock", "sm_clock", "l2_read_sectors", "l2_write_sectors",
                             "l2_fill_sectors", "l2_hit_sectors"}) {
    if (kernel.contains("measured")) kernel["measured"].erase(metric);
  }
  if (!kernel.contains("counters")) return;
  for (const char* counter : kToldElsewhere) kernel["counters"].erase(counter);
  for (const char* counter : {"lts__t_sectors_srcunit_tex_op_write.sum", "lts__t_sectors_lookup_hit.sum"}) {
    kernel["counters"].erase(counter);
  }
}

/// Times that were predicted, not those that were measured; of each GPU its bytes, not what led to the time
/// of all.
void shorten_predictions(Json& run) {
  if (!run.contains("passes")) return;
  for (Json& pass : run["passes"]) {
    if (!pass.contains("predicted")) continue;
    round_numbers(pass["predicted"], kTimeDigits, false);
    if (!pass.contains("gpus")) continue;
    for (Json& gpu : pass["gpus"]) {
      for (const char* step :
           {"launches", "visible_pairs", "attention_s", "elementwise_s", "link_s", "end_s"})
        gpu.erase(step);
    }
  }
}

/// Where programs and files lay on the machine of the record is nobody's business elsewhere.
void leave_out_folders(Json& argv) {
  for (Json& word : argv) {
    if (!word.is_string()) continue;
    const std::filesystem::path path = word.get<std::string>();
    if (path.is_absolute()) word = (&word == &argv.front() ? "./" : "") + path.filename().string();
  }
}

}  // namespace

std::string compact_record(const std::string& source, std::string_view text) {
  Json json = parse_json(source, text);
  const JsonField field(source, json);
  const std::string schema = field.at("schema").text();
  if (!schema.starts_with("tilescope.")) field.at("schema").refuse("must be that of a record");
  if (schema == kRunSchema) {
    parse_run_record(source, text);
    for (Json& run : json["runs"]) shorten_run(run);
  }
  if (schema == kKernelsSchema) {
    parse_kernel_record(source, text);
    for (Json& kernel : json["kernels"]) shorten_kernel(kernel);
  }
  if (schema == kDistributedSchema) {
    for (Json& run : json["runs"]) shorten_predictions(run);
  }
  if (json.contains("argv")) leave_out_folders(json["argv"]);
  if (json.contains("simulation_of")) leave_out_folders(json["simulation_of"]["argv"]);
  return table_text(with_tables(json));
}

}  // namespace tilescope
