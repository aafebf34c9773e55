// SPDX-License-Identifier: Apache-2.0
#include "profiler/records/kernel_record.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "common/errors.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope {
namespace {

/// What tells the launches of one place in a program from those of another.
using LaunchKey = std::tuple<std::string, std::array<std::int64_t, 3>, std::array<std::int64_t, 3>>;

LaunchKey key(const KernelMeasurement& kernel) {
  return {kernel.name, kernel.launch.grid, kernel.launch.block};
}

KernelRecord read(const Json& json) {
  KernelRecord record;
  record.argv = json.at("argv").get<std::vector<std::string>>();
  record.when = json.at("when").get<std::string>();
  record.metrics = json.at("metrics").get<std::string>();
  if (json.contains("exit_code")) record.exit_code = json.at("exit_code").get<std::int64_t>();
  record.complete = json.at("complete").get<bool>();
  record.collections = json.at("machine").get<std::vector<CollectionFacts>>();
  if (json.contains("messages")) record.messages = json.at("messages").get<std::vector<std::string>>();
  record.kernels = json.at("kernels").get<std::vector<KernelMeasurement>>();
  return record;
}

}  // namespace

std::string to_json_text(const KernelRecord& record) {
  Json json{{"schema", kKernelsSchema},      {"argv", record.argv},       {"when", record.when},
            {"machine", record.collections}, {"metrics", record.metrics}, {"complete", record.complete}};
  if (record.exit_code) json["exit_code"] = *record.exit_code;
  if (!record.messages.empty()) json["messages"] = record.messages;
  json["kernels"] = record.kernels;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

KernelRecord parse_kernel_record(const std::string& source, std::string_view text) {
  try {
    const Json json = parse_json(source, text);
    const std::string schema = json.at("schema").get<std::string>();
    if (schema != kKernelsSchema) {
      throw BadInput(source + ": schema", schema, "must be " + std::string(kKernelsSchema));
    }
    return read(json);
  } catch (const Json::exception& error) {
    throw BadInput(source + " is no record of kernels: " + error.what());
  }
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
