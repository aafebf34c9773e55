// SPDX-License-Identifier: Apache-2.0
// The source lines of an emulated kernel with their bytes and findings, for the report and for the terminal.
#pragma once

#include <string>
#include <vector>

#include "analysis/report/document/report_document.hpp"
#include "profiler/records/kernel_measurement.hpp"

namespace tilescope {

/// Headings, then a row a line: line, read, written, sectors a request, excess, wavefronts a request,
/// findings, source; a dash where there is nothing to say.
std::vector<std::vector<std::string>> emulated_rows(const EmulatedKernel& kernel);

/// "race at kernel.cu:11 and kernel.cu:13: ...", one a finding.
std::vector<std::string> finding_sentences(const EmulatedKernel& kernel);

/// What the report shows of an emulated kernel.
std::vector<Block> emulated_blocks(const KernelMeasurement& kernel);

}  // namespace tilescope
