// SPDX-License-Identifier: Apache-2.0
#include "profiler/records/kernel_measurement.hpp"

#include <algorithm>

#include "common/statistics.hpp"
#include "profiler/records/kernel_fields.hpp"

namespace tilescope {

double KernelTime::median_s() const { return summary ? summary->median_s : median_of(samples_s); }
double KernelTime::min_s() const { return summary ? summary->min_s : *std::ranges::min_element(samples_s); }

void to_json(Json& json, const KernelMeasurement& kernel) { json = Part<KernelMeasurement>{}.write(kernel); }
void from_json(const Json& json, KernelMeasurement& kernel) {
  kernel = Part<KernelMeasurement>{}.read(JsonField("kernel", json));
}

}  // namespace tilescope
