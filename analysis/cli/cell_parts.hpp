// SPDX-License-Identifier: Apache-2.0
// Cells whose words name several things at once, as those of a problem or a run do: for other tools each is
// a column of its own.
#pragma once

#include "analysis/cli/output.hpp"
#include "cpu_ref/schedule/problem.hpp"

namespace tilescope::cli {

/// The problem's words, and its batch, heads, lengths, head dimension, element type and mask.
Cell as_problem(const AttentionProblem& problem);

/// For programs: a column for each part, after the one that has them, among the keys too.
Table with_parts_beside(Table table);
/// For people: the parts that differ between the rows in place of a column that has some, and the words that
/// all rows share in the title. A column that says more than its parts stays beside them.
Table with_parts_in_place(Table table);

}  // namespace tilescope::cli
