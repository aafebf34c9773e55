// SPDX-License-Identifier: Apache-2.0
// The runs of a problem as a roofline sees them, and the charts of the roofline section.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/model/counts/roofline.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "analysis/report/document/report_document.hpp"
#include "analysis/report/figures/charts.hpp"

namespace tilescope {

/// The ceilings of a run's machine: as its file states them, and as `tilescope ceilings` measured them where
/// a file NAME-measured.json stands beside it.
struct RunCeilings {
  std::string machine_title;
  std::vector<Ceiling> stated, measured;
};

/// Nothing for a run on an unknown machine. The machine is the one that was simulated, or else the one that
/// was measured. A kernel on CUDA cores multiplies in fp32 whatever its element type: their peak is its roof.
std::optional<RunCeilings> run_ceilings(const RunSummary& run);

/// Bytes that were measured where they were, else by closed form (SM<->L2) and simulation (DRAM); the time
/// likewise, else the least that the ceilings allow.
struct RooflineSubject {
  const RunSummary* run = nullptr;
  KernelWork work;
  bool dram_measured = false;
  double seconds = 0;
  bool timed = false;
  std::string limit;  // the ceiling that its work comes nearest to

  double flops_per_second() const { return static_cast<double>(work.flops) / seconds; }
  /// Work per byte at a boundary, `amount` being the work; nothing where the bytes are not known.
  std::optional<double> intensity(double amount, CeilingKind boundary) const;
};

/// Nothing when neither time nor ceilings say how long the run takes.
std::optional<RooflineSubject> roofline_subject(const RunSummary& run, const RunCeilings& ceilings);

using Subjects = std::vector<RooflineSubject>;

/// "288.0 TFLOP/s"
std::string flops_rate(double flops_per_second);

/// The hierarchical roofline of runs of one problem and direction: a bar a kernel, a point a boundary, arrows
/// from standard to flash2. One panel.
Figure roofline_figure(const Subjects& subjects, const RunCeilings& ceilings);

/// The same for the exponentials of a softmax, in instructions of a warp, under the ceiling of the unit that
/// computes them; runs without exponentials are left out. Nothing where none is left, or the ceiling is not
/// known.
std::optional<Figure> instruction_figure(Subjects subjects, const RunCeilings& ceilings);

}  // namespace tilescope
