// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/machine/machine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <filesystem>

#include "analysis/model/machine/machine_fields.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/records/record_parts.hpp"
#include "common/installed_files.hpp"
#include "common/nearest_names.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope {

/// Where the JSON library looks for it.
static void to_json(Json& json, const PassProgress& pass) {
  json = {{"kernel", pass.kernel},
          {"pass", pass.pass},
          {"head_dim", pass.head_dim},
          {"dtype", to_string(pass.dtype)},
          {"younger_rate", pass.rates.younger_rate},
          {"alone_rate", pass.rates.alone_rate}};
  if (pass.rates.step_cv > 0) json["step_cv"] = pass.rates.step_cv;
  if (pass.rates.tpc_cv > 0) json["tpc_cv"] = pass.rates.tpc_cv;
  if (pass.rates.clock_cv > 0) json["clock_cv"] = pass.rates.clock_cv;
}

namespace {

namespace fs = std::filesystem;

/// @throws MachineLacks where the program was moved without them
fs::path machine_folder() {
  const fs::path folder = installed_file("share/tilescope/machines");
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return folder;
  throw MachineLacks("the machine files are missing: they belong into " + folder.string() +
                     ", and --machine FILE.json takes one from anywhere");
}

template <typename T>
Fact<T> with_evidence(const JsonField& field, T value) {
  static const std::vector<std::string> kinds = {"datasheet", "measured", "derived", "assumed", "unverified"};
  Fact<T> fact{value, field.at("source").text(), field.at("kind").text()};
  if (std::find(kinds.begin(), kinds.end(), fact.kind) == kinds.end()) {
    field.at("kind").refuse(fmt::format("must be one of {}", fmt::join(kinds, ", ")));
  }
  if (fact.source.empty()) field.at("source").refuse("must say where the number came from");
  return fact;
}

Fact<std::int64_t> integer_fact(const JsonField& field) {
  return with_evidence(field, field.at("value").integer(1));
}

template <typename T>
Json to_json(const Fact<T>& fact) {
  return {{"value", fact.value}, {"kind", fact.kind}, {"source", fact.source}};
}

Fact<double> real_fact(const JsonField& field) { return with_evidence(field, field.at("value").positive()); }

Fact<std::int64_t> effective_bytes_fact(const JsonField& field, std::int64_t l2_bytes) {
  return with_evidence(field, field.at("value").integer(1, l2_bytes));
}

constexpr std::int64_t kMostWays = 1024;

Fact<std::vector<SmGroup>> sm_groups_fact(const JsonField& field, std::int64_t sm_count) {
  const std::vector<SmGroup> groups = parse_sm_groups(field.at("value"), sm_count, kL2Partitions);
  std::int64_t sms = 0;
  for (const SmGroup& group : groups) sms += group.sms;
  if (sms != sm_count) field.at("value").refuse(fmt::format("must have {} SMs in all", sm_count));
  return with_evidence(field, groups);
}

/// @throws BadInput naming the field where `name` is none
ElementType element_type(const JsonField& field, const std::string& name) {
  try {
    return parse_element_type(name);
  } catch (const BadInput& error) {
    field.refuse(error.what());
  }
}

Fact<std::vector<PassProgress>> pass_progress_fact(const JsonField& field) {
  const auto cv = [](const JsonField& entry, const char* name) {
    return entry.has(name) ? entry.at(name).positive() : 0.0;
  };
  std::vector<PassProgress> all;
  for (const JsonField& entry : field.at("value").items()) {
    all.push_back({entry.at("kernel").text(),
                   entry.at("pass").text(),
                   entry.at("head_dim").integer(1, kMaxHeadDim),
                   element_type(entry.at("dtype"), entry.at("dtype").text()),
                   {entry.at("younger_rate").positive(), entry.at("alone_rate").positive(),
                    cv(entry, "step_cv"), cv(entry, "tpc_cv"), cv(entry, "clock_cv")}});
  }
  return with_evidence(field, all);
}

}  // namespace

ProgressRates Machine::progress_of(std::string_view kernel, std::string_view pass,
                                   const AttentionProblem& problem) const {
  const auto distance = [&problem](const PassProgress& entry) {
    return std::abs(entry.head_dim - problem.head_dim);
  };
  static const std::vector<PassProgress> kNone;
  const PassProgress* nearest = nullptr;
  for (const PassProgress& entry : cta_progress ? cta_progress->value : kNone) {
    if (entry.kernel != kernel || entry.pass != pass) continue;
    if (element_bytes(entry.dtype) != element_bytes(problem.dtype)) continue;
    if (nearest == nullptr || distance(entry) < distance(*nearest)) nearest = &entry;
  }
  if (nearest != nullptr) return nearest->rates;
  return {.clock_cv = clock_cv ? clock_cv->value : 0.0};
}

bool Machine::knows_progress_of(std::string_view kernel) const {
  return cta_progress && std::any_of(cta_progress->value.begin(), cta_progress->value.end(),
                                     [kernel](const PassProgress& pass) { return pass.kernel == kernel; });
}

std::optional<int> Machine::compute_capability() const {
  // CUDA C++ Programming Guide, "Compute Capabilities"
  constexpr std::pair<std::string_view, int> kOfChips[] = {{"GA100", 80},  {"GA102", 86},  {"AD102", 89},
                                                           {"GH100", 90},  {"GB100", 100}, {"GB202", 120},
                                                           {"GB203", 120}, {"GB205", 120}};
  for (const auto& [name, capability] : kOfChips) {
    if (chip == name) return capability;
  }
  return std::nullopt;
}

std::optional<SplitL2Shape> Machine::split_l2() const {
  if (!l2_ways || !sm_groups) return std::nullopt;
  SplitL2Shape shape{l2_bytes.value / kL2Partitions, l2_ways->value, sm_groups->value};
  if (l2_dirty_ways) shape.dirty_ways = l2_dirty_ways->value;
  return shape;
}

std::int64_t Machine::resident_ctas_per_sm(std::int64_t shared_bytes) const {
  // CUDA keeps 1 KiB of shared memory for itself in each CTA on these chips (compute capability 8.0 and
  // later).
  constexpr std::int64_t kReservedBytes = 1024;
  const std::int64_t by_shared = shared_bytes_per_sm.value / (shared_bytes + kReservedBytes);
  return std::clamp<std::int64_t>(by_shared, 1, ctas_per_sm.value);
}

std::optional<double> Machine::exponentials_per_second() const {
  if (!exponentials_per_clock_per_sm) return std::nullopt;
  return static_cast<double>(exponentials_per_clock_per_sm->value * sm_count.value) * sm_clock_hz.value;
}

std::optional<double> Machine::peak_flops(ElementType type) const {
  const auto found = peak_flops_per_second.find(std::string(to_string(type)));
  if (found == peak_flops_per_second.end()) return std::nullopt;
  return found->second.value;
}

Machine parse_machine(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  const JsonField field(source, json);
  require_machine_fields(source, json);
  Machine machine;
  machine.name = field.at("name").text();
  machine.title = field.at("title").text();
  machine.chip = field.at("chip").text();
  machine.sm_count = integer_fact(field.at("sm_count"));
  machine.shared_bytes_per_sm = integer_fact(field.at("shared_bytes_per_sm"));
  machine.shared_bytes_per_cta = integer_fact(field.at("shared_bytes_per_cta"));
  machine.on_chip_bytes_per_sm = integer_fact(field.at("on_chip_bytes_per_sm"));
  machine.ctas_per_sm = integer_fact(field.at("ctas_per_sm"));
  machine.l2_bytes = integer_fact(field.at("l2_bytes"));
  machine.l2_effective_bytes = effective_bytes_fact(field.at("l2_effective_bytes"), machine.l2_bytes.value);
  if (field.has("clock_cv")) {
    machine.clock_cv = real_fact(field.at("clock_cv"));
  }
  if (field.has("cta_progress")) {
    machine.cta_progress = pass_progress_fact(field.at("cta_progress"));
  }
  if (field.has("l2_ways") || field.has("sm_groups")) {
    machine.l2_ways =
        with_evidence(field.at("l2_ways"), field.at("l2_ways").at("value").integer(1, kMostWays));
    machine.sm_groups = sm_groups_fact(field.at("sm_groups"), machine.sm_count.value);
    if (field.has("l2_dirty_ways")) {
      const JsonField dirty = field.at("l2_dirty_ways");
      machine.l2_dirty_ways = with_evidence(dirty, dirty.at("value").integer(1, machine.l2_ways->value));
    }
    if (machine.split_l2()->sets() < SplitL2Shape::kLeastSets) {
      field.at("l2_ways").at("value").refuse(
          fmt::format("must leave {} sets or more to half of an L2 of {} bytes", SplitL2Shape::kLeastSets,
                      machine.l2_bytes.value));
    }
  }
  if (field.has("dram_bytes")) machine.dram_bytes = integer_fact(field.at("dram_bytes"));
  machine.dram_bytes_per_second = real_fact(field.at("dram_bytes_per_second"));
  if (field.has("l2_bytes_per_second"))
    machine.l2_bytes_per_second = real_fact(field.at("l2_bytes_per_second"));
  if (field.has("link_bytes_per_second"))
    machine.link_bytes_per_second = real_fact(field.at("link_bytes_per_second"));
  if (field.has("link_latency_seconds"))
    machine.link_latency_seconds = real_fact(field.at("link_latency_seconds"));
  if (field.has("launch_seconds")) machine.launch_seconds = real_fact(field.at("launch_seconds"));
  machine.sm_clock_hz = real_fact(field.at("sm_clock_hz"));
  if (field.has("exponentials_per_clock_per_sm")) {
    machine.exponentials_per_clock_per_sm = integer_fact(field.at("exponentials_per_clock_per_sm"));
  }
  for (const auto& [type, peak] : field.at("peak_flops_per_second").entries()) {
    element_type(peak, type);
    machine.peak_flops_per_second[type] = real_fact(peak);
  }
  return machine;
}

std::string to_json_text(const Machine& machine) {
  Json json{{"name", machine.name}, {"title", machine.title}, {"chip", machine.chip}};
  json["sm_count"] = to_json(machine.sm_count);
  json["shared_bytes_per_sm"] = to_json(machine.shared_bytes_per_sm);
  json["shared_bytes_per_cta"] = to_json(machine.shared_bytes_per_cta);
  json["on_chip_bytes_per_sm"] = to_json(machine.on_chip_bytes_per_sm);
  json["ctas_per_sm"] = to_json(machine.ctas_per_sm);
  json["l2_bytes"] = to_json(machine.l2_bytes);
  json["l2_effective_bytes"] = to_json(machine.l2_effective_bytes);
  if (machine.clock_cv) json["clock_cv"] = to_json(*machine.clock_cv);
  if (machine.cta_progress) json["cta_progress"] = to_json(*machine.cta_progress);
  if (machine.l2_ways) json["l2_ways"] = to_json(*machine.l2_ways);
  if (machine.l2_dirty_ways) json["l2_dirty_ways"] = to_json(*machine.l2_dirty_ways);
  if (machine.sm_groups) json["sm_groups"] = to_json(*machine.sm_groups);
  if (machine.dram_bytes) json["dram_bytes"] = to_json(*machine.dram_bytes);
  json["dram_bytes_per_second"] = to_json(machine.dram_bytes_per_second);
  if (machine.l2_bytes_per_second) json["l2_bytes_per_second"] = to_json(*machine.l2_bytes_per_second);
  if (machine.link_bytes_per_second) json["link_bytes_per_second"] = to_json(*machine.link_bytes_per_second);
  if (machine.link_latency_seconds) json["link_latency_seconds"] = to_json(*machine.link_latency_seconds);
  if (machine.launch_seconds) json["launch_seconds"] = to_json(*machine.launch_seconds);
  json["sm_clock_hz"] = to_json(machine.sm_clock_hz);
  if (machine.exponentials_per_clock_per_sm) {
    json["exponentials_per_clock_per_sm"] = to_json(*machine.exponentials_per_clock_per_sm);
  }
  json["peak_flops_per_second"] = Json::object();
  for (const auto& [type, peak] : machine.peak_flops_per_second) {
    json["peak_flops_per_second"][type] = to_json(peak);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(machine_folder())) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

/// Records know a machine by its name, which therefore must not mean two.
void require_own_name(const std::string& path, const Machine& machine) {
  const fs::path shipped = machine_folder() / (machine.name + ".json");
  std::error_code ignored;
  if (!fs::exists(shipped, ignored) || parse_machine(shipped, read_text_file(shipped)) == machine) return;
  throw BadInput(path + ": name", machine.name,
                 "must be a name of its own: the machine of that name that TileScope ships is another");
}

}  // namespace

Machine load_machine(const std::string& name_or_path) {
  if (name_or_path.ends_with(".json")) {
    const Machine machine = parse_machine(name_or_path, read_text_file(name_or_path));
    require_own_name(name_or_path, machine);
    return machine;
  }
  const std::vector<std::string> names = machine_names();
  if (std::find(names.begin(), names.end(), name_or_path) == names.end()) {
    const UnknownName unknown = unknown_name("machine", name_or_path, names);
    throw UnknownName("machine", unknown.value(), unknown.allowed() + "; or FILE.json", unknown.nearest());
  }
  const std::string path = machine_folder() / (name_or_path + ".json");
  return parse_machine(path, read_text_file(path));
}

Machine with_measured_ceilings(Machine machine) {
  const std::vector<std::string> names = machine_names();
  const std::string name = machine.name + "-measured";
  if (std::find(names.begin(), names.end(), name) == names.end()) return machine;
  const Machine measured = load_machine(name);
  machine.dram_bytes_per_second = measured.dram_bytes_per_second;
  if (measured.l2_bytes_per_second) machine.l2_bytes_per_second = measured.l2_bytes_per_second;
  for (const auto& [type, peak] : measured.peak_flops_per_second) machine.peak_flops_per_second[type] = peak;
  return machine;
}

}  // namespace tilescope
