// SPDX-License-Identifier: Apache-2.0
// The part of tilescope._native that runs kernels on the emulated device.
#pragma once

#include <nanobind/nanobind.h>

namespace tilescope::python {

void bind_emulation(nanobind::module_& module);

}  // namespace tilescope::python
