// SPDX-License-Identifier: Apache-2.0
// What the records of `profile` that are no record of kernels have in common, and their schemas.
#pragma once

#include <string>

#include "profiler/records/field_list.hpp"

namespace tilescope::cli {

struct DeviceName {
  std::string name, chip, driver;
};

template <typename Fields>
void list(Fields& fields, Of<Fields, DeviceName>& device) {
  fields.required("name", tilescope::Text{}, device.name);
  fields.required("chip", tilescope::Text{}, device.chip);
  fields.required("driver", tilescope::Text{}, device.driver);
}

Json self_test_schema();
Json timeline_schema();

}  // namespace tilescope::cli
