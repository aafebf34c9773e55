// SPDX-License-Identifier: Apache-2.0
// What each file adds to the module tilescope._native.
#pragma once

#include <nanobind/nanobind.h>

namespace tilescope::python {

namespace nb = nanobind;
using namespace nb::literals;

void bind_catalogues(nb::module_& module);
void bind_counting(nb::module_& module);
void bind_device(nb::module_& module);
void bind_emulation(nb::module_& module);
void bind_model(nb::module_& module);

}  // namespace tilescope::python
