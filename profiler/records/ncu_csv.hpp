// SPDX-License-Identifier: Apache-2.0
// What Nsight Compute measured, as it writes it with `--page raw --print-units base`, with `--csv` or
// without.
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

/// The same of its page for people, which `ncu --import FILE.ncu-rep --page raw --print-units base` writes
/// too.
/// @throws BadInput for a number that is rounded to a larger unit
std::vector<KernelMeasurement> parse_ncu_text(const std::string& source, std::string_view text);
/// Whether a text holds such a page.
bool is_ncu_text(std::string_view text);

}  // namespace tilescope
