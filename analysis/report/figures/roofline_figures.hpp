// SPDX-License-Identifier: Apache-2.0
// The charts of the roofline section.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/report/document/report_document.hpp"
#include "analysis/report/figures/chart_looks.hpp"
#include "analysis/report/roofline_subject.hpp"

namespace tilescope {

using Subjects = std::vector<RooflineSubject>;

/// "288.0 TFLOP/s"
std::string flops_rate(double flops_per_second);

/// The hierarchical roofline of runs of one problem and direction: a bar a kernel, a point a boundary, arrows
/// from standard to flash2. One panel. @param looks one for all figures, so that a kernel looks the same in
/// each
Figure roofline_figure(const Subjects& subjects, const RunCeilings& ceilings, KernelLooks& looks);

/// The same for the exponentials of a softmax, in instructions of a warp, under the ceiling of the unit that
/// computes them; runs without exponentials are left out. Nothing where none is left, or the ceiling is not
/// known.
std::optional<Figure> instruction_figure(Subjects subjects, const RunCeilings& ceilings, KernelLooks& looks);

}  // namespace tilescope
