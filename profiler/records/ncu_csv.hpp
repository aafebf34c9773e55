// SPDX-License-Identifier: Apache-2.0
// What Nsight Compute measured, as it writes it with `--csv --page raw --print-units base`, to be held
// against.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profiler/records/kernel_measurement.hpp"

namespace tilescope {

/// Kernels in order of launch with their geometry and every counter among the columns.
/// @param source what error messages call the text, usually its path
/// @throws BadInput for text without the columns Kernel Name, Grid Size and Block Size, or with a broken row
std::vector<KernelMeasurement> parse_ncu_csv(const std::string& source, std::string_view text);

}  // namespace tilescope
