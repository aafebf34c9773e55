// SPDX-License-Identifier: Apache-2.0
#include "profiler/records/emulated_kernel.hpp"

#include "profiler/records/field_list.hpp"

namespace tilescope {

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

void to_json(Json& json, const EmulatedKernel& kernel) { json = Part<EmulatedKernel>().write(kernel); }
void from_json(const Json& json, EmulatedKernel& kernel) {
  kernel = Part<EmulatedKernel>().read(JsonField("emulated", json));
}

}  // namespace tilescope
