// SPDX-License-Identifier: Apache-2.0
// A problem in a record.
#pragma once

#include "analysis/records/json/json_fields.hpp"
#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

Json problem_json(const AttentionProblem& problem);
/// @throws BadInput naming the field, for a problem that validate() refuses too
AttentionProblem problem_from(const JsonField& field);

}  // namespace tilescope
