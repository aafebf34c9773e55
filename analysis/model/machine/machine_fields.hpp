// SPDX-License-Identifier: Apache-2.0
// The fields of a machine file: one list for its reader, its writer and the template.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/model/machine/machine_defaults.hpp"
#include "analysis/records/record_parts.hpp"
#include "profiler/records/field_list.hpp"
#include "profiler/records/field_schema.hpp"

namespace tilescope {

inline constexpr const char *kPeaks = "peak_flops_per_second", *kProgress = "cta_progress";

/// Whether a field holds several facts, by element type or by unit.
inline bool is_group(std::string_view field) { return field == kPeaks || field == kProgress; }

/// Names the fields of a list.
class FieldNames {
 public:
  static constexpr bool kReads = false;
  struct Field {
    std::string name, unit;  // the unit of a codec that has one
    bool required;
  };

  template <typename Codec, typename T>
  void required(const char* key, const Codec& codec, const T&) {
    add(key, codec, true);
  }
  template <typename Codec, typename T>
  void optional(const char* key, const Codec& codec, const T&) {
    add(key, codec, false);
  }
  template <typename Codec, typename T>
  void unless(const T&, const char* key, const Codec& codec, const T&) {
    add(key, codec, false);
  }
  template <typename Codec, typename T>
  void entries(const char* key, const Codec& codec, const T&) {
    add(key, codec, false);
  }

  std::vector<Field> all;

 private:
  template <typename Codec>
  void add(const char* key, const Codec& codec, bool required) {
    std::string unit;
    if constexpr (requires { codec.unit; }) unit = codec.unit;
    all.push_back({key, unit, required});
  }
};

inline std::vector<std::string> fact_kinds() {
  return {"datasheet", "measured", "derived", "assumed", "unverified", std::string(kDefaultKind)};
}

/// The template's, in place of a source; and what follows is the meaning of the field.
inline constexpr const char* kNoSource = "where the number came from; ";

/// Of a number that stands alone, without its source: what rests on it says so.
inline constexpr const char *kBareKind = "unverified", *kBareSource = "not said in the machine's file";

/// Whether a file has a number as "sm_count": 132.
inline bool is_bare(const JsonField& field) { return number_in(field.value()).has_value(); }

/// Of a number with its source, or one that stands alone.
inline JsonField value_of(const JsonField& field) { return is_bare(field) ? field : field.at("value"); }

/// @throws BadInput for what is no value with evidence, with the form of one
inline void require_fact(const JsonField& field) {
  constexpr const char* kForm =
      R"(as in {"value": 128, "kind": "datasheet", "source": "NVIDIA's data sheet"})";
  if (!field.value().is_object())
    field.refuse(fmt::format("must be a number, or one with its kind and source, {}", kForm));
  try {
    for (const char* part : {"value", "kind", "source"}) field.at(part);
  } catch (const BadInput& lack) {
    throw BadInput(fmt::format("{}: a value has its kind and source, {}", lack.what(), kForm));
  }
}

/// A value with evidence. Least and most are no specification: they tell bytes from MiB and Hz from MHz.
template <typename T, typename Codec>
struct FactOf {
  Codec codec;
  const char* unit = "";
  double least = 0, most = 1e300;

  Json schema() const {
    if constexpr (std::is_arithmetic_v<T>)
      return defined("fact", schema_with({{"type", {"number", "string"}}}));
    return schema_with(schema_of(codec));
  }
  Json write(const Fact<T>& fact) const {
    return {{"value", codec.write(fact.value)}, {"kind", fact.kind}, {"source", fact.source}};
  }
  Fact<T> read(const JsonField& field) const {
    if constexpr (std::is_arithmetic_v<T>) {
      if (is_bare(field)) return {credible(field), kBareSource, kBareKind};
    }
    require_fact(field);
    const std::vector<std::string> kinds = fact_kinds();
    Fact<T> fact{credible(field.at("value")), field.at("source").text(), field.at("kind").text()};
    if (std::ranges::find(kinds, fact.kind) == kinds.end())
      field.at("kind").refuse(fmt::format("must be one of {}", fmt::join(kinds, ", ")));
    if (fact.source.empty()) field.at("source").refuse("must say where the number came from");
    if (fact.source.starts_with(kNoSource))
      field.at("source").refuse("must say where the number came from: the text is still the template's");
    return fact;
  }

 private:
  static Json schema_with(const Json& value) {
    // A number may stand alone.
    const Json type = std::is_arithmetic_v<T> ? Json{"object", "number", "string"} : Json("object");
    return {{"type", type},
            {"properties",
             {{"value", value}, {"kind", {{"enum", fact_kinds()}}}, {"source", {{"type", "string"}}}}},
            {"required", {"value", "kind", "source"}},
            {"additionalProperties", false}};
  }
  T credible(const JsonField& value) const {
    const T read = read_value(value);
    if constexpr (std::is_arithmetic_v<T>) {
      const double number = static_cast<double>(read);
      if (number < least || number > most)
        value.refuse(fmt::format("must be in {}: {:g} ... {:g} is credible", unit, least, most));
    }
    return read;
  }
  /// A number of bytes or FLOP may have its unit.
  T read_value(const JsonField& value) const {
    if constexpr (std::is_arithmetic_v<T>) {
      if (value.value().is_string()) {
        const std::optional<double> number = number_in(value.value());
        if (!number)
          value.refuse(
              fmt::format("must be a number in {}, or with its unit, as in \"126MiB\" or \"8TB/s\"", unit));
        return static_cast<T>(*number);
      }
    }
    return codec.read(value);
  }
};

inline FactOf<std::int64_t, Integer> count_of(const char* unit, double least, double most) {
  return {{1}, unit, least, most};
}
inline FactOf<double, Positive> number_of(const char* unit, double least, double most) {
  return {{}, unit, least, most};
}

template <typename T>
struct PartsOf {
  static Json schema() { return {{"type", "array"}, {"items", part_schema<T>()}}; }
  Json write(const std::vector<T>& parts) const {
    Json json = Json::array();
    for (const T& part : parts) json.push_back(Part<T>{}.write(part));
    return json;
  }
  std::vector<T> read(const JsonField& field) const {
    std::vector<T> parts;
    for (const JsonField& part : field.items()) parts.push_back(Part<T>{}.read(part));
    return parts;
  }
};

template <typename Fields>
void list(Fields& fields, Of<Fields, ProgressRates>& rates) {
  fields.required("younger_rate", StepRate{}, rates.younger_rate);
  fields.required("alone_rate", StepRate{}, rates.alone_rate);
  fields.unless(0.0, "step_cv", Positive{}, rates.step_cv);
  fields.unless(0.0, "tpc_cv", Positive{}, rates.tpc_cv);
  fields.unless(0.0, "clock_cv", Positive{}, rates.clock_cv);
}

template <typename Fields>
void list(Fields& fields, Of<Fields, Machine>& machine) {
  constexpr std::int64_t kMostWays = 1024;
  const FactOf<std::int64_t, Integer> ways{{1, kMostWays}};
  fields.required("name", Text{}, machine.name);
  fields.required("title", Text{}, machine.title);
  fields.required("chip", Text{}, machine.chip);
  fields.required("sm_count", count_of("SMs", 1, 4096), machine.sm_count);
  fields.required("shared_bytes_per_sm", count_of("bytes", 0x1p13, 0x1p26), machine.shared_bytes_per_sm);
  fields.required("shared_bytes_per_cta", count_of("bytes", 0x1p13, 0x1p26), machine.shared_bytes_per_cta);
  fields.required("on_chip_bytes_per_sm", count_of("bytes", 0x1p15, 0x1p28), machine.on_chip_bytes_per_sm);
  fields.required("ctas_per_sm", count_of("CTAs", 1, 1024), machine.ctas_per_sm);
  fields.required("l2_bytes", count_of("bytes", 0x1p17, 0x1p36), machine.l2_bytes);
  fields.required("l2_effective_bytes", count_of("bytes", 0, 0x1p36), machine.l2_effective_bytes);
  fields.entries(kProgress, FactOf<ProgressRates, Part<ProgressRates>>{}, machine.cta_progress);
  fields.optional("l2_ways", ways, machine.l2_ways);
  fields.optional("l2_dirty_ways", ways, machine.l2_dirty_ways);
  fields.optional("sm_groups", FactOf<std::vector<SmGroup>, PartsOf<SmGroup>>{}, machine.sm_groups);
  fields.optional("dram_bytes", count_of("bytes", 1e9, 1e13), machine.dram_bytes);
  fields.required("dram_bytes_per_second", number_of("bytes a second", 1e9, 1e15),
                  machine.dram_bytes_per_second);
  fields.optional("l2_bytes_per_second", number_of("bytes a second", 1e10, 1e16),
                  machine.l2_bytes_per_second);
  fields.optional("link_bytes_per_second", number_of("bytes a second, in one direction", 1e8, 1e14),
                  machine.link_bytes_per_second);
  fields.optional("link_latency_seconds", number_of("seconds a transfer", 1e-9, 1),
                  machine.link_latency_seconds);
  fields.optional("launch_seconds", number_of("seconds a launch", 1e-9, 1), machine.launch_seconds);
  fields.optional("empty_launch_seconds", number_of("seconds a launch", 1e-9, 1),
                  machine.empty_launch_seconds);
  fields.optional("next_launch_seconds", number_of("seconds a launch", 1e-9, 1), machine.next_launch_seconds);
  fields.optional("early_launch_seconds", number_of("seconds a launch", 1e-9, 1),
                  machine.early_launch_seconds);
  fields.required("sm_clock_hz", number_of("Hz", 1e8, 1e10), machine.sm_clock_hz);
  fields.optional("boost_clock_hz", number_of("Hz", 1e8, 1e10), machine.boost_clock_hz);
  fields.optional("tensor_clock_hz", number_of("Hz", 1e8, 1e10), machine.tensor_clock_hz);
  fields.optional("tensor_flops_per_clock_per_sm", number_of("FLOP a clock", 1, 1e6),
                  machine.tensor_flops_per_clock_per_sm);
  fields.optional("mma_sync_peak_share", FactOf<double, Positive>{{}, "", 0, 1}, machine.mma_sync_peak_share);
  fields.optional("exponentials_per_clock_per_sm", count_of("a clock", 1, 1024),
                  machine.exponentials_per_clock_per_sm);
  fields.entries(kPeaks, number_of("FLOP a second", 1e9, 1e18), machine.peak_flops_per_second);
}

inline std::string machine_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// The names of a part's fields.
template <typename T>
FieldNames fields_of() {
  FieldNames fields;
  list(fields, T{});
  return fields;
}

}  // namespace tilescope
