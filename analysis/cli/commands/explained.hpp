// SPDX-License-Identifier: Apache-2.0
// What `explain`, and `profile --explain`, say of kernels.
#pragma once

#include <string>

#include "analysis/explain/explain_record.hpp"

namespace tilescope::cli {

enum class AnswerFormat : std::uint8_t { text, markdown };

/// For each kernel what it must move, moved, why, and what would help; then what the bytes leave open.
/// @throws BadInput where the kernels speak against the problem: nothing else is worth saying then
std::string explained(const ExplainRecord& record, AnswerFormat format);

}  // namespace tilescope::cli
