// SPDX-License-Identifier: Apache-2.0
// The explanation of somebody's kernels as a table of the report.
#pragma once

#include "analysis/explain/explain_record.hpp"
#include "analysis/report/document/report_document.hpp"

namespace tilescope {

/// A row a kernel: the program with its tile, the bytes of both sides with what is left over, the causes.
Table explanation_table(const ExplainRecord& record);

}  // namespace tilescope
