// SPDX-License-Identifier: Apache-2.0
#include "profiler/records/kernel_record.hpp"

#include <map>
#include <tuple>

#include "profiler/records/kernel_fields.hpp"

namespace tilescope {
namespace {

/// What tells the launches of one place in a program from those of another.
using LaunchKey = std::tuple<std::string, std::array<std::int64_t, 3>, std::array<std::int64_t, 3>>;

LaunchKey key(const KernelMeasurement& kernel) {
  return {kernel.name, kernel.launch.grid, kernel.launch.block};
}

}  // namespace

template <typename Fields>
static void list(Fields& fields, Of<Fields, KernelRecord>& record) {
  fields.items("argv", Text{}, record.argv);
  fields.required("when", Text{}, record.when);
  fields.items("machine", Part<CollectionFacts>{}, record.collections);
  fields.required("metrics", Text{}, record.metrics);
  fields.required("complete", Flag{}, record.complete);
  fields.optional("exit_code", Integer{}, record.exit_code);
  fields.items_if_any("messages", Text{}, record.messages);
  fields.items("kernels", Part<KernelMeasurement>{}, record.kernels);
}

Json kernel_record_schema() { return record_schema<KernelRecord>(kKernelsSchema); }

std::string to_json_text(const KernelRecord& record) {
  return record_text(record_json(kKernelsSchema, record));
}

KernelRecord parse_kernel_record(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  const JsonField field(source, json);
  if (field.at("schema").text() != kKernelsSchema) {
    field.at("schema").refuse("must be " + std::string(kKernelsSchema));
  }
  return Part<KernelRecord>{}.read(field);
}

std::int64_t join_runs(std::vector<KernelMeasurement>& kernels, const std::vector<KernelMeasurement>& other) {
  std::map<LaunchKey, std::vector<const KernelMeasurement*>> launches;
  for (const KernelMeasurement& kernel : other) launches[key(kernel)].push_back(&kernel);
  std::map<LaunchKey, std::size_t> taken;
  std::int64_t alone = 0;
  for (KernelMeasurement& kernel : kernels) {
    const auto& same = launches[key(kernel)];
    const std::size_t number = taken[key(kernel)]++;
    if (number >= same.size()) {
      ++alone;
      continue;
    }
    const KernelMeasurement& twin = *same[number];
    kernel.counters.insert(twin.counters.begin(), twin.counters.end());
    kernel.measured.insert(twin.measured.begin(), twin.measured.end());
    if (!kernel.time) kernel.time = twin.time;
  }
  return alone;
}

}  // namespace tilescope
