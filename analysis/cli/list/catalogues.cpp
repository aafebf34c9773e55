// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/list/catalogues.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/profile/profile_records.hpp"
#include "analysis/explain/explain_record.hpp"
#include "analysis/model/machine/machine.hpp"
#include "analysis/model/replay/replay_cost.hpp"
#include "analysis/records/compare/record_diff.hpp"
#include "analysis/records/record_schemas.hpp"
#include "analysis/studies/bench_sweeps.hpp"
#include "analysis/studies/model_shapes.hpp"
#include "analysis/studies/study.hpp"
#include "common/log.hpp"
#include "common/nearest_names.hpp"
#include "common/number_format.hpp"
#include "cpu_ref/schedule/masks/mask_models.hpp"
#include "cpu_ref/schedule/problem.hpp"
#include "distributed/schedule/distributed_program.hpp"
#include "profiler/counters/metric_sets.hpp"

namespace tilescope::cli {
namespace {

/// Features that few kernels have, and what of: they stand below the table, which is as wide as it may be.
constexpr std::pair<Feature, std::string_view> kRareFeatures[] = {{Feature::descales, "fp8"},
                                                                  {Feature::split_keys, "keys"},
                                                                  {Feature::packed_heads, "heads"},
                                                                  {Feature::query_splits, "queries"},
                                                                  {Feature::mask_rules, "`list masks`"},
                                                                  {Feature::value_dim, "values"},
                                                                  {Feature::paged_keys, "keys"},
                                                                  {Feature::fp8_keys, "caches"},
                                                                  {Feature::shared_kv, "latent keys"}};

bool is_rare(Feature feature) {
  if (score_mod_features().has(feature)) return true;
  return std::ranges::any_of(kRareFeatures, [feature](const auto& rare) { return rare.first == feature; });
}

/// "standard on simd", "flash2 on mma.sync, backward fused|split|rows"
std::string kernel_detail(const Kernel& kernel) {
  std::string text = fmt::format("{} on {}", to_string(kernel.algorithm), to_string(kernel.math_unit));
  for (BackwardOrder order : kernel.backward_orders) {
    text +=
        fmt::format("{}{}", order == kernel.backward_orders.front() ? ", backward " : "|", to_string(order));
  }
  return text;
}

/// "sm_80+"
std::string chips_of(const Kernel& kernel) {
  if (!kernel.launch_shape) return "CPU";
  const auto [first, last] = kernel.chips;
  if (first == last) return fmt::format("sm_{}", first);
  return last == ChipRange{}.last ? fmt::format("sm_{}+", first)
                                  : fmt::format("sm_{} ... sm_{}", first, last);
}

/// "64 128 256 (8n)": what lies between is padded, of multiples of 8 alone.
std::string head_dims_of(const Capabilities& can) {
  if (can.head_dims.empty()) return "any";
  // Of 16-bit types: what takes fp8 takes twice that there, and says so where it refuses.
  const int multiple = can.head_dim_multiple(ElementType::fp16);
  return fmt::format("{}{}", fmt::join(can.head_dims, " "),
                     multiple > 1 ? fmt::format(" ({}n)", multiple) : "");
}

/// What a kernel's row says that it can.
std::vector<std::pair<std::string, std::string>> kernel_columns(const Kernel& kernel) {
  const Capabilities& can = kernel.can;
  const auto types = [](const FeatureSet& features) {
    return features.empty() ? "-" : element_types_of(features, " ", " ");
  };
  std::vector<std::string_view> sums, orders;
  const bool fp8 = can.forward.has(Feature::fp8e4m3) || can.forward.has(Feature::fp8e5m2);
  for (const Fp8Sums way : kernel.fp8_sums) sums.push_back(to_string(way));
  for (const BackwardOrder order : kernel.backward_orders) orders.push_back(to_string(order));
  std::vector<std::pair<std::string, std::string>> columns = {
      {"rung", kernel.rung == 0 ? "-" : std::to_string(kernel.rung)},
      {"runs on", chips_of(kernel)},
      {"forward", types(can.forward)},
      {"backward", types(can.backward)},
      {"fp8 sums", fp8 ? fmt::format("{}", fmt::join(sums, " ")) : "-"},
      {"backward orders", orders.empty() ? "-" : fmt::format("{}", fmt::join(orders, " "))},
      {"head_dim built", head_dims_of(can)}};
  for (int i = static_cast<int>(std::size(kElementTypes)); i < kNumFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    if (is_rare(feature)) continue;
    const bool forward = can.forward.has(feature),
               backward = can.backward.has(feature) || can.backward.empty();
    columns.emplace_back(to_string(feature), forward && backward ? "yes" : forward ? "forward" : "-");
  }
  columns.emplace_back("slices", kernel.smallest_part == 0   ? "-"
                                 : kernel.smallest_part == 1 ? "any"
                                                             : fmt::format("of {}", kernel.smallest_part));
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

std::string rare_features_note() {
  std::string note;
  const auto add = [&note](Feature feature, std::string_view of) {
    std::vector<std::string_view> names;
    for (const Kernel* kernel : all_kernels()) {
      if (kernel->can.forward.has(feature) || kernel->can.backward.has(feature))
        names.push_back(kernel->name);
    }
    note += fmt::format(" {} of {}: {}.", to_string(feature), of, fmt::join(names, ", "));
  };
  for (const auto& [feature, of] : kRareFeatures) add(feature, of);
  for (int i = 0; i < kNumFeatures; ++i) {
    if (score_mod_features().has(static_cast<Feature>(i))) add(static_cast<Feature>(i), "scores");
  }
  return note;
}

std::vector<Entry> list_problems() {
  std::vector<Entry> entries;
  for (const Preset& preset : presets()) {
    entries.push_back({std::string(preset.name), describe(preset.problem), std::string(preset.summary)});
  }
  return entries;
}

std::vector<Entry> list_masks() {
  std::vector<Entry> entries;
  for (const MaskModel& model : mask_models()) {
    entries.push_back({std::string(model.name), std::string(model.form), std::string(model.summary)});
  }
  return entries;
}

std::vector<Entry> list_models() {
  std::vector<Entry> entries;
  for (const ModelShape& model : model_shapes()) {
    entries.push_back(
        {std::string(model.name),
         fmt::format("{} layers, H{}/{} D{}{}", model.layers, model.heads, model.heads_kv, model.head_dim,
                     model.window > 0 ? fmt::format(" window {}", model.window) : ""),
         fmt::format("{}; {}", model.title, model.source)});
  }
  return entries;
}

std::vector<Entry> list_studies() {
  std::vector<Entry> entries;
  for (const Study& study : studies()) {
    const std::string where = study.default_machine.empty() ? "this CPU" : std::string(study.default_machine);
    const Machine machine = study.default_machine.empty() ? Machine{} : load_machine(where);
    double seconds = 0;
    if (study.plan) {
      for (const StudyTask& task : study.plan(machine)) seconds += task.seconds;
    }
    entries.push_back({std::string(study.name), fmt::format("{}, {}", where, about_seconds(seconds)),
                       std::string(study.summary)});
  }
  return entries;
}

std::vector<Entry> list_schedules() {
  std::vector<Entry> entries;
  for (const LinkSchedule schedule : kLinkSchedules) {
    entries.push_back({std::string(to_string(schedule)), "", std::string(summary_of(schedule))});
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

/// Which of two machines' ceilings count, where one is the other as measured.
std::string ceilings_remark(const Machine& machine) {
  const double stated = machine.dram_bytes_per_second.value;
  const double used = with_measured_ceilings(machine).dram_bytes_per_second.value;
  if (used != stated) {
    return fmt::format("; judged by the ceilings of {}{}: DRAM {}/s", machine.name, kMeasuredSuffix,
                       format_bytes(used));
  }
  if (!machine.name.ends_with(kMeasuredSuffix)) return "";
  return fmt::format("; by which {} is judged too",
                     machine.name.substr(0, machine.name.size() - kMeasuredSuffix.size()));
}

std::vector<Entry> list_machines() {
  std::vector<Entry> entries;
  for (const std::string& name : machine_names()) {
    const Machine machine = load_machine(name);
    entries.push_back({name,
                       fmt::format("{} {} SMs, L2 {}, DRAM {}/s", machine.chip, machine.sm_count.value,
                                   format_capacity(machine.l2_bytes.value),
                                   format_bytes(machine.dram_bytes_per_second.value)),
                       machine.title + ceilings_remark(machine)});
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

std::vector<Entry> list_log_levels() {
  std::vector<Entry> entries;
  for (const LogLevelName& level : log_levels()) {
    entries.push_back({std::string(level.name), "", std::string(level.summary)});
  }
  return entries;
}

const std::vector<RecordSchema>& record_schemas() {
  static const std::vector<RecordSchema> all = {
      {"ceilings", ceilings_record_schema, "what `ceilings --json` writes"},
      {"diff", diff_record_schema, "what `diff --json` writes"},
      {"distributed", distributed_record_schema, "what commands with --gpus write with --json"},
      {"explain", explain_record_schema, "what `explain --json` writes"},
      {"kernels", kernel_record_schema, "what `profile --json FILE -- COMMAND` and `emulate --json` write"},
      {"machine", machine_schema, "what --machine FILE.json takes, without a base"},
      {"run", run_record_schema,
       "what `bench`, `profile --kernel`, `simulate`, `study`, `run` and `verify` write with --json"},
      {"self-test", self_test_schema, "what `profile --self-test --json` writes"},
      {"tiles", tile_table_schema, "the file that `bench --tune` writes and --tune-file names"},
      {"timeline", timeline_schema, "what `profile --timeline --json` writes"}};
  return all;
}

std::vector<Entry> list_schemas() {
  std::vector<Entry> entries;
  for (const RecordSchema& schema : record_schemas()) entries.push_back({schema.name, "", schema.summary});
  return entries;
}

}  // namespace

const RecordSchema& find_schema(const std::string& name) {
  return find_named(record_schemas(), "schema", name);
}

std::vector<Entry> list_numbers(const std::string& machine) {
  std::vector<Entry> entries;
  for (const MachineNumber& number : numbers_of(load_machine(machine))) {
    entries.push_back({number.field, fmt::format("{}, {}", number.value, number.kind), number.source});
  }
  return entries;
}

const std::vector<Catalogue>& catalogues() {
  static const std::vector<Catalogue> all = {
      {"counters", list_counters, "what profile --metrics takes"},
      {"kernels", list_kernels, "what --kernel takes, and what each kernel can",
       std::string("head_dim: what lies between is padded; (8n): multiples of 8 alone. slices: the smallest "
                   "parts that --diagonal-slices may cut. bnhd: tensors as PyTorch lays them out.") +
           rare_features_note()},
      {"log-levels", list_log_levels, "what --log-level takes, each with those before it"},
      {"machines", list_machines, "what --machine takes"},
      {"masks", list_masks, "what --mask takes, beside --causal and --window"},
      {"metrics", list_metrics, "what diff --budget takes"},
      {"models", list_models, "what --model takes"},
      {"problems", list_problems, "what --preset takes"},
      {"schedules", list_schedules, "what --schedule takes: how several GPUs share a problem"},
      {"schemas", list_schemas, "JSON schemas of records: `list schemas run` prints one"},
      {"studies", list_studies, "what study takes"},
      {"sweeps", list_sweeps, "what bench --sweep takes"}};
  return all;
}

namespace {

std::vector<Entry> list_lists() {
  std::vector<Entry> entries;
  for (const Catalogue& catalogue : catalogues()) {
    entries.push_back({catalogue.name, fmt::format("{} names", catalogue.entries().size()),
                       std::string(catalogue.summary)});
  }
  return entries;
}

}  // namespace

const Catalogue& find_catalogue(const std::string& name) {
  static const Catalogue kLists = {"lists", list_lists, ""};
  if (name.empty()) return kLists;
  return find_named(catalogues(), "list", name);
}

}  // namespace tilescope::cli
