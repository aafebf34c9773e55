// SPDX-License-Identifier: Apache-2.0
// The lists of fields (field_list.hpp) of what is measured of a kernel, and of what it was collected with.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "profiler/injection/event_file.hpp"
#include "profiler/records/field_list.hpp"
#include "profiler/records/field_schema.hpp"
#include "profiler/records/kernel_measurement.hpp"

namespace tilescope {

/// [x, y, z]; 0 where a launch does not say.
struct Extent {
  static Json schema() { return defined("extent", array_schema(schema_of(Integer{0}), 3)); }
  Json write(const std::array<std::int64_t, 3>& extent) const { return extent; }
  std::array<std::int64_t, 3> read(const JsonField& field) const {
    const std::vector<JsonField> sides = field.items();
    if (sides.size() != 3) field.refuse("must be [x, y, z]");
    return {sides[0].integer(0), sides[1].integer(0), sides[2].integer(0)};
  }
};

/// Whole numbers stand as integers.
struct CounterNumber {
  static Json schema() { return number_schema(); }
  Json write(double value) const {
    const bool whole = std::isfinite(value) && std::floor(value) == value &&
                       std::abs(value) <= static_cast<double>(kMostCount) + 1;
    return whole ? Json(static_cast<std::int64_t>(value)) : json_number(value);
  }
  double read(const JsonField& field) const { return field.number(); }
};

template <typename Fields>
void list(Fields& fields, Of<Fields, EmulatedLine>& line) {
  const auto unless_0 = [&fields](const char* key, auto& value) {
    fields.unless(std::int64_t{0}, key, kCount, value);
  };
  fields.unless(std::string(), "file", Text{}, line.file);
  fields.required("line", kCount, line.line);
  fields.unless(std::string(), "text", Text{}, line.text);
  unless_0("instructions", line.instructions);
  unless_0("requests", line.requests);
  unless_0("asked_bytes", line.asked_bytes);
  unless_0("sectors", line.sectors);
  unless_0("least_sectors", line.least_sectors);
  unless_0("read_bytes", line.read_bytes);
  unless_0("write_bytes", line.write_bytes);
  unless_0("least_write_bytes", line.least_write_bytes);
  unless_0("l1_hit_bytes", line.l1_hit_bytes);
  unless_0("beyond_tensor_bytes", line.beyond_tensor_bytes);
  unless_0("shared_requests", line.shared_requests);
  unless_0("wavefronts", line.wavefronts);
  unless_0("least_wavefronts", line.least_wavefronts);
}

template <typename Fields>
void list(Fields& fields, Of<Fields, EmulatedFinding>& finding) {
  fields.required("kind", Text{}, finding.kind);
  fields.required("is_error", Flag{}, finding.is_error);
  fields.items("places", Text{}, finding.places);
  fields.required("text", Text{}, finding.text);
}

template <typename Fields>
void list(Fields& fields, Of<Fields, EmulatedKernel>& kernel) {
  fields.required("completed", Flag{}, kernel.completed);
  fields.optional("right", Flag{}, kernel.right);
  fields.required("must_read_bytes", kCount, kernel.must_read_bytes);
  fields.required("must_write_bytes", kCount, kernel.must_write_bytes);
  fields.required("least_read_bytes", kCount, kernel.least_read_bytes);
  fields.required("least_write_bytes", kCount, kernel.least_write_bytes);
  fields.unless(std::int64_t{0}, "constant_bytes", kCount, kernel.constant_bytes);
  fields.required("seconds", Distance{}, kernel.seconds);
  fields.items_if_any("notes", Text{}, kernel.notes);
  fields.items("lines", Part<EmulatedLine>{}, kernel.lines);
  fields.items_if_any("findings", Part<EmulatedFinding>{}, kernel.findings);
}

template <typename Fields>
void list(Fields& fields, Of<Fields, LaunchFacts>& launch) {
  fields.required("grid", Extent{}, launch.grid);
  fields.required("block", Extent{}, launch.block);
  fields.optional("cluster", Extent{}, launch.cluster);
  fields.optional("registers", kCount, launch.registers);
  fields.optional("shared_bytes", kCount, launch.shared_bytes);
  fields.optional("local_bytes", kCount, launch.local_bytes);
}

template <typename Fields>
void list(Fields& fields, Of<Fields, KernelTime>& time) {
  double median_s = time.any() ? time.median_s() : 0, min_s = time.any() ? time.min_s() : 0;
  auto samples = time.summary ? std::optional(time.summary->samples) : std::nullopt;
  fields.required("median_s", Distance{}, median_s);
  fields.required("min_s", Distance{}, min_s);
  fields.optional("samples", kCount, samples);
  fields.items_if_any("samples_s", Distance{}, time.samples_s);
  if constexpr (Fields::kReads) {
    if (samples) time.summary = {median_s, min_s, *samples};
    fields.check(time.any(), "samples_s", "must hold a time where \"samples\" is missing");
  }
}

template <typename Fields>
void list(Fields& fields, Of<Fields, KernelMeasurement>& kernel) {
  fields.required("name", Text{}, kernel.name);
  fields.required("launch", Part<LaunchFacts>{}, kernel.launch);
  fields.entries("measured", CounterNumber{}, kernel.measured);
  fields.entries("counters", CounterNumber{}, kernel.counters);
  fields.optional("emulated", Part<EmulatedKernel>{}, kernel.emulated);
  fields.optional("time", Part<KernelTime>{}, kernel.time);
}

template <typename Fields>
void list(Fields& fields, Of<Fields, CollectionFacts>& facts) {
  fields.required("name", Text{}, facts.device);
  fields.required("chip", Text{}, facts.chip);
  fields.required("driver", Text{}, facts.driver);
  fields.required("replay", Text{}, facts.replay);
  fields.required("passes", Integer{0, std::numeric_limits<int>::max()}, facts.passes);
  fields.added("l2", Text{}, facts.l2);
}

}  // namespace tilescope
