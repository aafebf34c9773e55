// SPDX-License-Identifier: Apache-2.0
#include "profiler/records/kernel_measurement.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/statistics.hpp"
#include "profiler/timing/timed_samples.hpp"

namespace tilescope {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53

Json number(double value) {
  if (std::isfinite(value) && std::floor(value) == value && std::abs(value) <= kExactIntegers) {
    return static_cast<std::int64_t>(value);
  }
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";  // what JSON has no numbers for
}

double from_number(const Json& json) {
  if (!json.is_string()) return json.get<double>();
  const auto text = json.get<std::string>();
  if (text == "nan") return std::nan("");
  return text == "inf" ? INFINITY : -INFINITY;
}

Json numbers(const std::map<std::string, double>& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) json[name] = number(value);
  return json;
}

std::map<std::string, double> read_numbers(const Json& json, const char* key) {
  std::map<std::string, double> values;
  if (!json.contains(key)) return values;
  for (const auto& [name, value] : json.at(key).items()) values[name] = from_number(value);
  return values;
}

template <class T>
void put(Json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}

template <class T>
void take(const Json& json, const char* key, std::optional<T>& value) {
  if (json.contains(key)) value = json.at(key).get<T>();
}

}  // namespace

double KernelTime::median_s() const { return summary ? summary->median_s : median_of(samples_s); }
double KernelTime::min_s() const {
  return summary ? summary->min_s : *std::min_element(samples_s.begin(), samples_s.end());
}

void to_json(Json& json, const KernelMeasurement& kernel) {
  Json launch{{"grid", kernel.launch.grid}, {"block", kernel.launch.block}};
  put(launch, "cluster", kernel.launch.cluster);
  put(launch, "registers", kernel.launch.registers);
  put(launch, "shared_bytes", kernel.launch.shared_bytes);
  put(launch, "local_bytes", kernel.launch.local_bytes);
  json = Json{{"name", kernel.name}, {"launch", std::move(launch)}};
  if (!kernel.measured.empty()) json["measured"] = numbers(kernel.measured);
  if (!kernel.counters.empty()) json["counters"] = numbers(kernel.counters);
  put(json, "emulated", kernel.emulated);
  if (kernel.time) {
    json["time"] = Json{{"median_s", kernel.time->median_s()}, {"min_s", kernel.time->min_s()}};
    if (kernel.time->summary) {
      json["time"]["samples"] = kernel.time->summary->samples;
    } else {
      json["time"]["samples_s"] = kernel.time->samples_s;
    }
  }
}

void from_json(const Json& json, KernelMeasurement& kernel) {
  kernel = {};
  kernel.name = json.at("name").get<std::string>();
  const Json& launch = json.at("launch");
  kernel.launch.grid = launch.at("grid").get<std::array<std::int64_t, 3>>();
  kernel.launch.block = launch.at("block").get<std::array<std::int64_t, 3>>();
  take(launch, "cluster", kernel.launch.cluster);
  take(launch, "registers", kernel.launch.registers);
  take(launch, "shared_bytes", kernel.launch.shared_bytes);
  take(launch, "local_bytes", kernel.launch.local_bytes);
  kernel.measured = read_numbers(json, "measured");
  kernel.counters = read_numbers(json, "counters");
  take(json, "emulated", kernel.emulated);
  if (json.contains("time")) {
    const Json& time = json.at("time");
    kernel.time.emplace();
    if (time.contains("samples")) {
      kernel.time->summary = {time.at("median_s").get<double>(), time.at("min_s").get<double>(),
                              time.at("samples").get<std::int64_t>()};
    } else {
      kernel.time->samples_s = time.at("samples_s").get<std::vector<double>>();
    }
  }
}

}  // namespace tilescope
