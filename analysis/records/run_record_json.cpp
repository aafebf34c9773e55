// SPDX-License-Identifier: Apache-2.0
// The record as JSON: one writer and one reader for each of its parts.
#include "analysis/records/atomic_file.hpp"
#include "analysis/records/json_fields.hpp"
#include "analysis/records/problem_json.hpp"
#include "analysis/records/run_record.hpp"

namespace tilescope {
namespace {

template <typename T>
void put(Json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}

std::optional<std::string> optional_text(const JsonField& field, const char* key) {
  return field.has(key) ? std::optional(field.at(key).text()) : std::nullopt;
}

std::optional<std::int64_t> optional_count(const JsonField& field, const char* key) {
  return field.has(key) ? std::optional(field.at(key).count()) : std::nullopt;
}

Json to_json(const MachineInfo& machine) {
  Json json = Json::object();
  put(json, "name", machine.name);
  put(json, "chip", machine.chip);
  put(json, "driver", machine.driver);
  put(json, "cuda", machine.cuda);
  put(json, "source", machine.source);
  put(json, "libraries", machine.libraries);
  put(json, "cpu", machine.cpu);
  put(json, "threads", machine.threads);
  return json;
}

MachineInfo machine_from(const JsonField& field) {
  return {optional_text(field, "name"), optional_text(field, "chip"),    optional_text(field, "driver"),
          optional_text(field, "cuda"), optional_text(field, "source"),  optional_text(field, "libraries"),
          optional_text(field, "cpu"),  optional_count(field, "threads")};
}

Json to_json(const ClosedFormBytes& bytes) {
  return {{"sm_l2_read_bytes", bytes.sm_l2_read_bytes},
          {"sm_l2_write_bytes", bytes.sm_l2_write_bytes},
          {"compulsory_read_bytes", bytes.compulsory_read_bytes},
          {"compulsory_write_bytes", bytes.compulsory_write_bytes}};
}

ClosedFormBytes closed_form_from(const JsonField& field) {
  return {field.at("sm_l2_read_bytes").count(), field.at("sm_l2_write_bytes").count(),
          field.at("compulsory_read_bytes").count(), field.at("compulsory_write_bytes").count()};
}

Json to_json(const SimulatedBytes& bytes) {
  Json json{{"machine", bytes.machine},
            {"l2_bytes", bytes.l2_bytes},
            {"co_resident_ctas", bytes.co_resident_ctas},
            {"sm_l2_read_bytes", bytes.sm_l2_read_bytes},
            {"sm_l2_write_bytes", bytes.sm_l2_write_bytes},
            {"dram_read_bytes", bytes.dram_read_bytes},
            {"dram_write_bytes", bytes.dram_write_bytes},
            {"hit_rate", bytes.hit_rate}};
  put(json, "dram_read_range", bytes.dram_read_range);
  for (const L2CurvePoint& point : bytes.l2_curve) {
    json["l2_curve"].push_back({{"l2_bytes", point.l2_bytes},
                                {"dram_read_bytes", point.dram_read_bytes},
                                {"dram_write_bytes", point.dram_write_bytes}});
  }
  return json;
}

std::array<std::int64_t, 2> range_from(const JsonField& field) {
  const std::vector<JsonField> ends = field.items();
  if (ends.size() != 2 || ends[0].count() > ends[1].count()) field.refuse("must be [least, largest]");
  return {ends[0].count(), ends[1].count()};
}

SimulatedBytes simulated_from(const JsonField& field) {
  SimulatedBytes bytes;
  bytes.machine = field.at("machine").text();
  bytes.l2_bytes = field.at("l2_bytes").count();
  bytes.co_resident_ctas = field.at("co_resident_ctas").count();
  bytes.sm_l2_read_bytes = field.at("sm_l2_read_bytes").count();
  bytes.sm_l2_write_bytes = field.at("sm_l2_write_bytes").count();
  bytes.dram_read_bytes = field.at("dram_read_bytes").count();
  bytes.dram_write_bytes = field.at("dram_write_bytes").count();
  bytes.hit_rate = field.at("hit_rate").number();
  if (field.has("dram_read_range")) bytes.dram_read_range = range_from(field.at("dram_read_range"));
  if (field.has("l2_curve")) {
    for (const JsonField& point : field.at("l2_curve").items()) {
      bytes.l2_curve.push_back({point.at("l2_bytes").count(), point.at("dram_read_bytes").count(),
                                point.at("dram_write_bytes").count()});
    }
  }
  return bytes;
}

Json to_json(const MeasuredBytes& bytes) {
  Json json = Json::object();
  put(json, "sm_l2_read_bytes", bytes.sm_l2_read_bytes);
  put(json, "sm_l2_write_bytes", bytes.sm_l2_write_bytes);
  put(json, "dram_read_bytes", bytes.dram_read_bytes);
  put(json, "dram_write_bytes", bytes.dram_write_bytes);
  put(json, "dram_read_range", bytes.dram_read_range);
  put(json, "instruction_fetch_bytes", bytes.instruction_fetch_bytes);
  return json;
}

MeasuredBytes measured_from(const JsonField& field) {
  MeasuredBytes bytes{optional_count(field, "sm_l2_read_bytes"), optional_count(field, "sm_l2_write_bytes"),
                      optional_count(field, "dram_read_bytes"), optional_count(field, "dram_write_bytes")};
  if (field.has("dram_read_range")) bytes.dram_read_range = range_from(field.at("dram_read_range"));
  bytes.instruction_fetch_bytes = optional_count(field, "instruction_fetch_bytes");
  return bytes;
}

Json to_json(const TimeRecord& time) {
  Json json{{"median_s", time.median_s}, {"min_s", time.min_s}, {"noise", json_number(time.noise)}};
  put(json, "throttled", time.throttled);
  put(json, "sm_clock_hz", time.sm_clock_hz);
  json["samples_s"] = time.samples_s;
  return json;
}

TimeRecord time_from(const JsonField& field) {
  TimeRecord time{
      field.at("median_s").positive(), field.at("min_s").positive(), field.at("noise").number(), {}};
  for (const JsonField& sample : field.at("samples_s").items()) time.samples_s.push_back(sample.positive());
  time.throttled = optional_count(field, "throttled");
  if (field.has("sm_clock_hz")) time.sm_clock_hz = field.at("sm_clock_hz").positive();
  return time;
}

Json to_json(const MeasuredPaces& measured) {
  return {{"ctas_per_sm", measured.ctas_per_sm},        {"step_cycles", measured.step_cycles},
          {"younger", measured.paces.younger},          {"alone", measured.paces.alone},
          {"step_spread", measured.paces.step_spread},  {"tpc_spread", measured.paces.tpc_spread},
          {"clock_spread", measured.paces.clock_spread}};
}

MeasuredPaces paces_from(const JsonField& field) {
  constexpr std::int64_t kMostCtas = 1024;
  const auto spread = [&field](const char* name) { return field.has(name) ? field.at(name).number() : 0.0; };
  return {static_cast<int>(field.at("ctas_per_sm").integer(1, kMostCtas)),
          field.at("step_cycles").number(),
          {field.at("younger").positive(), field.at("alone").positive(), spread("step_spread"),
           spread("tpc_spread"), spread("clock_spread")}};
}

Json to_json(const LaunchRecord& launch) {
  Json json{{"grid", launch.grid}, {"block", launch.block}};
  put(json, "registers", launch.registers);
  put(json, "shared_bytes", launch.shared_bytes);
  return json;
}

std::array<std::int64_t, 3> extent_from(const JsonField& field) {
  const std::vector<JsonField> sides = field.items();
  if (sides.size() != 3) field.refuse("must be [x, y, z]");
  return {sides[0].integer(1), sides[1].integer(1), sides[2].integer(1)};
}

LaunchRecord launch_from(const JsonField& field) {
  return {extent_from(field.at("grid")), extent_from(field.at("block")), optional_count(field, "registers"),
          optional_count(field, "shared_bytes")};
}

Json to_json(const PassRecord& pass) {
  Json json{{"name", pass.name}};
  json["direction"] = to_string(pass.direction);
  if (pass.tile != kUnknownTile) {
    json["tile"] = {{"block_m", pass.tile.block_m}, {"block_n", pass.tile.block_n}};
  }
  json["flops"] = pass.flops;
  json["executed_flops"] = pass.executed_flops;
  if (pass.closed_form) json["closed_form"] = to_json(*pass.closed_form);
  if (pass.simulated) json["simulated"] = to_json(*pass.simulated);
  if (pass.measured) json["measured"] = to_json(*pass.measured);
  if (pass.time) json["time"] = to_json(*pass.time);
  for (const auto& [name, value] : pass.counters) {
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      json["counters"][name] = *integer;
    } else {
      json["counters"][name] = json_number(std::get<double>(value));
    }
  }
  if (pass.paces) json["paces"] = to_json(*pass.paces);
  if (pass.launch) json["launch"] = to_json(*pass.launch);
  return json;
}

PassRecord pass_from(const JsonField& field) {
  PassRecord pass;
  pass.name = field.at("name").text();
  const std::string direction = field.at("direction").text();
  if (direction != "forward" && direction != "backward") {
    field.at("direction").refuse("must be forward or backward");
  }
  pass.direction = direction == "forward" ? Direction::forward : Direction::backward;
  constexpr int kMost = std::numeric_limits<int>::max();
  if (field.has("tile")) {
    const JsonField tile = field.at("tile");
    pass.tile = {static_cast<int>(tile.at("block_m").integer(1, kMost)),
                 static_cast<int>(tile.at("block_n").integer(1, kMost))};
  } else {
    pass.tile = kUnknownTile;
  }
  pass.flops = field.at("flops").count();
  pass.executed_flops = field.at("executed_flops").count();
  if (field.has("closed_form")) pass.closed_form = closed_form_from(field.at("closed_form"));
  if (field.has("simulated")) pass.simulated = simulated_from(field.at("simulated"));
  if (field.has("measured")) pass.measured = measured_from(field.at("measured"));
  if (field.has("time")) pass.time = time_from(field.at("time"));
  if (field.has("counters")) {
    for (const auto& [name, counter] : field.at("counters").entries()) {
      if (counter.value().is_number_integer()) {
        pass.counters[name] = counter.integer();
      } else {
        pass.counters[name] = counter.number();
      }
    }
  }
  if (field.has("paces")) pass.paces = paces_from(field.at("paces"));
  if (field.has("launch")) pass.launch = launch_from(field.at("launch"));
  return pass;
}

Json to_json(const TensorErrorRecord& error) {
  Json json{{"max_abs", json_number(error.max_abs)},
            {"rmse", json_number(error.rmse)},
            {"max_ulp", json_number(error.max_ulp)},
            {"non_finite", error.non_finite},
            {"bound", json_number(error.bound)}};
  if (error.rmse_bound) json["rmse_bound"] = json_number(*error.rmse_bound);
  if (error.share) json["share"] = json_number(*error.share);
  return json;
}

TensorErrorRecord error_from(const JsonField& field) {
  TensorErrorRecord error{field.at("max_abs").number(), field.at("rmse").number(),
                          field.at("max_ulp").number(), field.at("non_finite").count(),
                          field.at("bound").number()};
  if (field.has("rmse_bound")) error.rmse_bound = field.at("rmse_bound").number();
  if (field.has("share")) error.share = field.at("share").number();
  return error;
}

Json to_json(const RepeatRecord& repeat) {
  return {{"runs", repeat.runs},
          {"runs_that_differ", repeat.runs_that_differ},
          {"spread", json_number(repeat.spread)},
          {"bound", json_number(repeat.bound)},
          {"may_differ", repeat.may_differ}};
}

RepeatRecord repeat_from(const JsonField& field) {
  return {field.at("runs").count(), field.at("runs_that_differ").count(), field.at("spread").number(),
          field.at("bound").number(), field.at("may_differ").boolean()};
}

Json to_json(const RunEntry& run) {
  Json json;
  json["problem"] = problem_json(run.problem);
  json["kernel"] = run.kernel;
  if (run.order) json["order"] = to_string(*run.order);
  if (run.scan) json["scan"] = to_string(*run.scan);
  if (run.inputs) json["inputs"] = to_string(*run.inputs);
  put(json, "l2", run.l2);
  if (run.memory != MemoryPlacement::contiguous) json["memory"] = to_string(run.memory);
  put(json, "cases", run.cases);
  put(json, "failed", run.failed);
  for (const auto& [direction, bytes] : run.device_bytes) json["device_bytes"][direction] = bytes;
  json["passes"] = Json::array();
  for (const PassRecord& pass : run.passes) json["passes"].push_back(to_json(pass));
  for (const auto& [tensor, error] : run.error) json["error"][tensor] = to_json(error);
  for (const auto& [tensor, error] : run.mirror_error) json["mirror_error"][tensor] = to_json(error);
  for (const auto& [tensor, repeat] : run.repeats) json["repeats"][tensor] = to_json(repeat);
  return json;
}

/// The value that `parse` finds in an optional text field.
template <typename T>
std::optional<T> optional_name(const JsonField& field, const char* key, T (*parse)(std::string_view)) {
  if (!field.has(key)) return std::nullopt;
  try {
    return parse(field.at(key).text());
  } catch (const BadInput& error) {
    field.at(key).refuse(error.what());
  }
}

RunEntry run_from(const JsonField& field) {
  RunEntry run;
  run.problem = problem_from(field.at("problem"));
  run.kernel = field.at("kernel").text();
  run.order = optional_name(field, "order", parse_tile_order);
  run.scan = optional_name(field, "scan", parse_scan);
  run.inputs = optional_name(field, "inputs", parse_input_kind);
  if (field.has("l2")) {
    run.l2 = field.at("l2").text();
    if (run.l2 != "cold" && run.l2 != "warm") field.at("l2").refuse("must be cold or warm");
  }
  run.memory = optional_name(field, "memory", parse_memory_placement).value_or(MemoryPlacement::contiguous);
  run.cases = optional_count(field, "cases");
  run.failed = optional_count(field, "failed");
  if (field.has("device_bytes")) {
    for (const auto& [direction, bytes] : field.at("device_bytes").entries()) {
      run.device_bytes[direction] = bytes.count();
    }
  }
  for (const JsonField& pass : field.at("passes").items()) run.passes.push_back(pass_from(pass));
  if (field.has("error")) {
    for (const auto& [tensor, error] : field.at("error").entries()) run.error[tensor] = error_from(error);
  }
  if (field.has("mirror_error")) {
    for (const auto& [tensor, error] : field.at("mirror_error").entries()) {
      run.mirror_error[tensor] = error_from(error);
    }
  }
  if (field.has("repeats")) {
    for (const auto& [tensor, repeat] : field.at("repeats").entries()) {
      run.repeats[tensor] = repeat_from(repeat);
    }
  }
  return run;
}

Json to_json(const GitState& git) {
  Json json{{"sha", git.sha}};
  put(json, "dirty", git.dirty);
  return json;
}

GitState git_from(const JsonField& field) {
  GitState git{field.at("sha").text(), {}};
  if (field.has("dirty")) git.dirty = field.at("dirty").boolean();
  return git;
}

std::vector<std::string> words_from(const JsonField& field) {
  std::vector<std::string> words;
  for (const JsonField& word : field.items()) words.push_back(word.text());
  return words;
}

}  // namespace

std::string to_json_text(const RunRecord& record) {
  Json json;
  json["schema"] = kRunSchema;
  json["argv"] = record.argv;
  json["git"] = to_json(record.git);
  json["when"] = record.when;
  json["machine"] = to_json(record.machine);
  if (record.cost) {
    json["cost"] = {{"elapsed_s", record.cost->elapsed_s},
                    {"peak_memory_bytes", record.cost->peak_memory_bytes}};
  }
  if (const auto& source = record.simulation_of) {
    json["simulation_of"] = {{"path", source->path},
                             {"argv", source->argv},
                             {"git", to_json(source->git)},
                             {"when", source->when},
                             {"machine_file", source->machine_file}};
  }
  json["runs"] = Json::array();
  for (const RunEntry& run : record.runs) json["runs"].push_back(to_json(run));
  // Bytes of argv that are not UTF-8 are replaced; they must not make a record impossible.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunRecord parse_run_record(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  const JsonField field(source, json);
  if (field.at("schema").text() != kRunSchema) {
    field.at("schema").refuse("this program reads \"" + std::string(kRunSchema) + "\"");
  }
  RunRecord record;
  record.argv = words_from(field.at("argv"));
  record.git = git_from(field.at("git"));
  record.when = field.at("when").text();
  record.machine = machine_from(field.at("machine"));
  if (field.has("cost")) {
    const JsonField cost = field.at("cost");
    record.cost = {cost.at("elapsed_s").positive(), cost.at("peak_memory_bytes").count()};
  }
  if (field.has("simulation_of")) {
    const JsonField source = field.at("simulation_of");
    record.simulation_of = {source.at("path").text(), words_from(source.at("argv")), source.at("when").text(),
                            git_from(source.at("git")), source.at("machine_file").text()};
  }
  for (const JsonField& run : field.at("runs").items()) record.runs.push_back(run_from(run));
  return record;
}

void write_run_record(const RunRecord& record, const std::string& path) {
  write_file_atomically("--json", path, to_json_text(record));
}

RunRecord read_run_record(const std::string& path) { return parse_run_record(path, read_text_file(path)); }

}  // namespace tilescope
