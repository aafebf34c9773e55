// SPDX-License-Identifier: Apache-2.0
// What `explain`, and `profile --explain`, say of kernels.
#pragma once

#include "analysis/cli/output.hpp"
#include "analysis/explain/explain_record.hpp"

namespace tilescope::cli {

/// For each kernel what it must move, moved, why, and what would help; then what the bytes leave open. As CSV
/// and LaTeX a table of the bytes.
/// @throws BadInput where the kernels speak against the problem: nothing else is worth saying then
Output explained(const ExplainRecord& record, TableFormat format);

}  // namespace tilescope::cli
