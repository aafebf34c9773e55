// SPDX-License-Identifier: Apache-2.0
// Studies: named sweeps whose records the report turns into its figures and tables.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {

/// A part of a study that runs by itself.
struct StudyTask {
  std::string label;
  std::function<std::vector<RunEntry>()> run;
  double seconds = 0;  // that it may take on one core, an estimate
};

struct Study {
  std::string_view name;
  std::string_view summary;          // one line for `tilescope list studies`
  std::string_view default_machine;  // the model that it simulates; "" if it computes instead
  std::vector<StudyTask> (*plan)(const Machine& machine);  // the tasks may refer to `machine`
  /// For a study that computes: on these kernels, where `plan` has those of the CPU alone.
  std::vector<StudyTask> (*plan_of_kernels)(const std::vector<const Kernel*>& kernels) = nullptr;
  /// For a study of what a seed draws of these kernels, which has no `plan`.
  std::vector<StudyTask> (*plan_of_draw)(const Machine& machine, std::uint64_t seed, int count,
                                         std::span<const Kernel* const> kernels) = nullptr;
};

std::span<const Study> studies();

/// @throws BadInput naming the nearest
const Study& find_study(std::string_view name);

}  // namespace tilescope
