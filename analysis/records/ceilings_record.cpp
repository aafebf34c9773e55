// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/ceilings_record.hpp"

#include <tuple>

#include "analysis/records/record_kinds.hpp"
#include "analysis/records/record_parts.hpp"
#include "analysis/records/record_schemas.hpp"
#include "profiler/records/field_list.hpp"
#include "profiler/records/field_schema.hpp"

namespace tilescope {
namespace {

/// The device: its facts stand among the others in memory, in an object of their own in the file.
struct Device {
  std::string name, architecture, driver;
};

}  // namespace

template <typename Fields>
static void list(Fields& fields, Of<Fields, Device>& device) {
  fields.required("name", Text{}, device.name);
  fields.required("architecture", Text{}, device.architecture);
  fields.required("driver", Text{}, device.driver);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, MeasuredCeiling>& ceiling) {
  fields.required("name", Text{}, ceiling.name);
  fields.required("unit", Text{}, ceiling.unit);
  fields.required("per_second", Positive{}, ceiling.per_second);
  fields.required("median_per_second", Positive{}, ceiling.median_per_second);
  fields.required("noise", Within{.least = 0}, ceiling.noise);
  fields.required("sm_clock_hz", Within{.least = 0}, ceiling.sm_clock_hz);
  fields.required("method", Text{}, ceiling.method);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, L2Residency>& point) {
  fields.required("access", Text{}, point.access);
  fields.required("footprint_bytes", Integer{1}, point.footprint_bytes);
  fields.required("kept", Within{}, point.kept);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, L2Partitions>& partitions) {
  fields.items("groups", Part<SmGroup>{}, partitions.groups);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, NoiseFloor>& reads) {
  fields.required("load", Text{}, reads.load);
  fields.required("seconds", Positive{}, reads.seconds);
  fields.required("dram_read_bytes", kCount, reads.dram_read_bytes);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, LinkCeiling>& link) {
  fields.required("engine", Text{}, link.engine);
  fields.required("both_ways", Flag{}, link.both_ways);
  fields.required("ctas", Integer{0, 1 << 20}, link.ctas);
  fields.required("bytes", kCount, link.bytes);
  fields.required("per_second", Positive{}, link.per_second);
  fields.required("median_per_second", Positive{}, link.median_per_second);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, CeilingsRecord>& record) {
  auto& measured = record.measured;
  fields.items("argv", Text{}, record.argv);
  fields.required("when", Text{}, record.when);
  Device device{measured.device, measured.architecture, measured.driver};
  fields.required("machine", Part<Device>{}, device);
  if constexpr (Fields::kReads)
    std::tie(measured.device, measured.architecture, measured.driver) =
        std::tie(device.name, device.architecture, device.driver);
  fields.items("ceilings", Part<MeasuredCeiling>{}, measured.ceilings);
  fields.added("l2_bytes", kCount, measured.l2_bytes);
  fields.items_if_any("l2", Part<L2Residency>{}, measured.l2);
  fields.unless(L2Partitions{}, "l2_partitions", Part<L2Partitions>{}, measured.l2_partitions);
  fields.items_if_any("noise_floor", Part<NoiseFloor>{}, measured.noise_floor);
  fields.items_if_any("links", Part<LinkCeiling>{}, measured.links);
  fields.items("left_out", Text{}, measured.left_out);
}

Json ceilings_record_schema() { return record_schema<CeilingsRecord>(kCeilingsSchema); }

std::string to_json_text(const CeilingsRecord& record) {
  return record_text(record_json(kCeilingsSchema, record));
}

CeilingsRecord parse_ceilings_record(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  require_kind(source, json, {kCeilingsSchema});
  return Part<CeilingsRecord>{}.read(JsonField(source, json));
}

}  // namespace tilescope
