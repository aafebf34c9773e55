// SPDX-License-Identifier: Apache-2.0
// A page without what it says twice, and without columns that say nothing.
#pragma once

#include "analysis/report/document/report_document.hpp"

namespace tilescope {

/// Of each section: sentences that stand in the caption of an earlier figure are left out of a later one but
/// where they open it, and commands that stand there already are referred to. Columns with a dash in every
/// row go. A block that is shown alone keeps all.
Document said_once(Document document);

}  // namespace tilescope
