// SPDX-License-Identifier: Apache-2.0
// A machine model with what `tilescope ceilings` measured.
#pragma once

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/ceilings_record.hpp"

namespace tilescope {

/// `base` with what was measured in the place of what is said of it, called "base-measured".
Machine measured_machine(Machine base, const CeilingsRecord& record);

}  // namespace tilescope
