// SPDX-License-Identifier: Apache-2.0
// The names that arguments take, as data.
#include <nanobind/stl/string.h>

#include <algorithm>

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/compare/record_diff.hpp"
#include "analysis/records/record_parts.hpp"
#include "analysis/studies/model_shapes.hpp"
#include "analysis/studies/study.hpp"
#include "common/nearest_names.hpp"
#include "distributed/schedule/distributed_program.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "profiler/counters/metric_catalogue.hpp"
#include "profiler/counters/metric_sets.hpp"
#include "profiler/injection/profiled_command.hpp"
#include "python/native/bindings.hpp"

namespace tilescope::python {
namespace {

Json kernels() {
  Json rows = Json::array();
  const auto features = [](const FeatureSet& set) {
    Json names = Json::array();
    for (int i = 0; i < kNumFeatures; ++i) {
      if (set.has(static_cast<Feature>(i))) names.push_back(to_string(static_cast<Feature>(i)));
    }
    return names;
  };
  for (const Kernel* kernel : all_kernels()) {
    Json orders = Json::array();
    for (const BackwardOrder order : kernel->backward_orders) orders.push_back(to_string(order));
    rows.push_back({{"name", kernel->name},
                    {"algorithm", to_string(kernel->algorithm)},
                    {"math_unit", to_string(kernel->math_unit)},
                    {"rung", kernel->rung},
                    {"forward", features(kernel->can.forward)},
                    {"backward", features(kernel->can.backward)},
                    {"backward_orders", orders},
                    {"head_dims", kernel->can.head_dims},
                    {"runs_here", is_runnable(*kernel)},
                    {"summary", kernel->summary}});
  }
  return rows;
}

Json machines() {
  Json rows = Json::array();
  for (const std::string& name : machine_names()) {
    const Machine machine = load_machine(name);
    Json peaks = Json::object();
    for (const auto& [type, peak] : machine.peak_flops_per_second) peaks[type] = peak.value;
    rows.push_back({{"name", name},
                    {"title", machine.title},
                    {"chip", machine.chip},
                    {"sm_count", machine.sm_count.value},
                    {"l2_bytes", machine.l2_bytes.value},
                    {"shared_bytes_per_sm", machine.shared_bytes_per_sm.value},
                    {"dram_bytes_per_second", machine.dram_bytes_per_second.value},
                    {"peak_flops_per_second", peaks}});
  }
  return rows;
}

Json metrics() {
  Json rows = Json::array();
  for (const RecordMetric& metric : record_metrics()) {
    rows.push_back({{"name", metric.name()},
                    {"unit", metric.unit},
                    {"allowed_increase", metric.budget.amount},
                    {"summary", metric.summary}});
  }
  return rows;
}

Json counters() {
  Json rows = Json::array();
  for (const MetricSet& set : metric_sets()) {
    rows.push_back({{"name", set.name}, {"unit", ""}, {"formula", ""}, {"summary", set.summary}});
  }
  for (const Metric& metric : all_metrics()) {
    rows.push_back({{"name", metric.name},
                    {"unit", metric.unit},
                    {"formula", to_string(metric.formulas.front())},
                    {"summary", metric.caveat}});
  }
  return rows;
}

/// The row of a set, or of a metric, as the chip counts it.
Json on_chip(Json row, const MetricCatalogue& chip) {
  const MetricChoice choice = choose_metrics(row.at("name").get<std::string>(), chip);
  row["passes"] = choice.counters.empty() ? Json(nullptr) : Json(chip.passes(choice.counters));
  if (row.at("formula") != "") {
    row["formula"] =
        choice.metrics.empty() ? Json(nullptr) : Json(to_string(*choice.metrics.front().formula));
  }
  return row;
}

Json named_problems() {
  Json rows = Json::array();
  for (const Preset& preset : presets()) {
    Json row = problem_json(preset.problem);
    row["name"] = preset.name;
    row["summary"] = preset.summary;
    rows.push_back(std::move(row));
  }
  return rows;
}

Json models() {
  Json rows = Json::array();
  for (const ModelShape& model : model_shapes()) {
    rows.push_back({{"name", model.name},
                    {"title", model.title},
                    {"layers", model.layers},
                    {"heads", model.heads},
                    {"heads_kv", model.heads_kv},
                    {"head_dim", model.head_dim},
                    {"window", model.window},
                    {"source", model.source}});
  }
  return rows;
}

Json schedules() {
  Json rows = Json::array();
  for (const LinkSchedule schedule : kLinkSchedules)
    rows.push_back({{"name", to_string(schedule)}, {"summary", summary_of(schedule)}});
  return rows;
}

Json named_studies() {
  Json rows = Json::array();
  for (const Study& study : studies()) {
    rows.push_back({{"name", study.name}, {"machine", study.default_machine}, {"summary", study.summary}});
  }
  return rows;
}

struct Catalogue {
  std::string_view name;
  Json (*rows)();
};
constexpr Catalogue kCatalogues[] = {
    {"kernels", kernels}, {"machines", machines},      {"metrics", metrics},     {"counters", counters},
    {"models", models},   {"presets", named_problems}, {"schedules", schedules}, {"studies", named_studies}};

Json or_null(const std::optional<std::string>& text) { return text ? Json(*text) : Json(nullptr); }

/// The library that is loaded into commands, where this build has it.
std::optional<std::string> injection() {
  try {
    return injection_library();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// What `list WHAT` lists, with numbers as numbers.
std::string catalogue(const std::string& what) {
  return find_named(kCatalogues, "catalogue", what).rows().dump();
}

/// The rows of `counters`, as a chip counts them: with the times that a kernel must run for them, and the
/// formula of its counters, null where it has none. Asks libcupti: no device is needed.
/// @param chip CUPTI's name of it @throws MachineLacks without libcupti, UnknownName
std::string counters_of(const std::string& chip) {
  const std::vector<std::string> known = MetricCatalogue::chips();
  if (std::ranges::find(known, chip) == known.end()) throw unknown_name("chip", chip, known);
  const MetricCatalogue catalogue(chip);
  Json rows = Json::array();
  for (Json& row : counters()) rows.push_back(on_chip(std::move(row), catalogue));
  return rows.dump();
}

/// Versions, and what this build and this machine can.
std::string info() {
  const GitState git = built_from();
#ifdef TILESCOPE_HAS_CUDA
  constexpr bool kHasCuda = true;
#else
  constexpr bool kHasCuda = false;
#endif
  const std::optional<DeviceFacts> device = device_facts();
  return Json{{"version", TILESCOPE_VERSION},
              {"git", git.sha},
              {"dirty", git.dirty ? Json(*git.dirty) : Json(nullptr)},
              {"cuda", kHasCuda},
              {"device", device ? Json(device->name) : Json(nullptr)},
              {"device_lack", or_null(device_lack())},
              {"injection_library", or_null(injection())},
              {"cpu", or_null(this_machine().cpu)},
              {"threads", this_machine().threads.value_or(0)}}
      .dump();
}

}  // namespace

void bind_catalogues(nb::module_& module) {
  module.def("catalogue", &catalogue, "what"_a);
  module.def("counters_of", &counters_of, "chip"_a);
  module.def("info", &info);
}

}  // namespace tilescope::python
