// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/simulate/simulate_warnings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/cli/tables/text_table.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

bool for_gpus(const Kernel& kernel) { return kernel.launch_shape != nullptr; }

std::string chip_warning(const SimulateJob& job) {
  const std::optional<int> capability = job.machine->compute_capability();
  if (!for_gpus(*job.kernel) || !capability || job.kernel->chips.has(*capability)) return "";
  const auto [first, last] = job.kernel->chips;
  return fmt::format(
      "{} runs on {}, and {} is sm_{}: no such machine reaches what follows", job.kernel->name,
      first == last ? fmt::format("sm_{} alone", first) : fmt::format("sm_{} and newer", first),
      job.machine->name, *capability);
}

/// Tiles of a kernel that takes any: those of the others are compiled, so they fit.
std::string shared_warning(const SimulateJob& job, const SimulationOptions& how) {
  if (for_gpus(*job.kernel)) return "";
  const auto largest =
      std::max_element(job.passes.begin(), job.passes.end(), [](const PlannedPass& a, const PlannedPass& b) {
        return a.program.shared_bytes() < b.program.shared_bytes();
      });
  const std::int64_t needed = largest->program.shared_bytes();
  if (job.machine->fits(needed)) return "";
  return fmt::format(
      "a CTA of {} {} needs {} of shared memory, one buffer a loaded tile and two a streamed one, where {} "
      "has {}{}",
      job.kernel->name, to_string(largest->program.name), format_capacity(needed), job.machine->name,
      format_capacity(job.machine->shared_bytes_per_cta.value),
      how.replay && !how.ctas_per_sm ? ": replayed with one CTA an SM" : "");
}

/// All tensors of all passes, at once.
std::int64_t tensor_bytes(const SimulateJob& job) {
  std::set<TensorName> tensors;
  for (const PlannedPass& pass : job.passes) {
    const TileProgram& program = pass.program;
    std::vector<std::vector<Operand>> lists = program.phases;
    lists.insert(lists.end(), {program.init, program.prologue, program.epilogue});
    for (const std::vector<Operand>& list : lists) {
      for (const Operand& operand : list) tensors.insert(operand.tensor);
    }
  }
  std::int64_t bytes = 0;
  for (const TensorName tensor : tensors) bytes += tensor_extent(job.problem, tensor).bytes();
  return bytes;
}

std::string memory_warning(const SimulateJob& job) {
  const std::int64_t needed = tensor_bytes(job);
  if (!job.machine->dram_bytes || needed <= job.machine->dram_bytes->value) return "";
  return fmt::format("the tensors of {} take {}, more than the {} of {}", job.kernel->name,
                     format_bytes(static_cast<double>(needed)),
                     format_bytes(static_cast<double>(job.machine->dram_bytes->value)), job.machine->name);
}

struct SmallGrid {
  const Kernel* kernel;
  std::string_view pass;
  std::int64_t ctas;
};

/// Of each kernel the pass of fewest CTAs, where they are fewer than the SMs.
std::vector<SmallGrid> small_grids(const std::vector<SimulateJob>& jobs, const Machine& machine) {
  std::vector<SmallGrid> grids;
  for (const SimulateJob& job : jobs) {
    if (job.machine->name != machine.name) continue;
    for (const PlannedPass& pass : job.passes) {
      const SmallGrid grid{job.kernel, to_string(pass.program.name), pass.program.num_ctas()};
      if (pass.program.matmuls == 0 || grid.ctas >= machine.sm_count.value) continue;
      const auto known = std::find_if(grids.begin(), grids.end(), [&grid](const SmallGrid& other) {
        return other.kernel == grid.kernel;
      });
      if (known == grids.end()) {
        grids.push_back(grid);
      } else if (grid.ctas < known->ctas) {
        *known = grid;
      }
    }
  }
  return grids;
}

std::string grid_warning(const std::vector<SimulateJob>& jobs, const Machine& machine) {
  std::string text;
  for (const auto& [kernel, pass, ctas] : small_grids(jobs, machine)) {
    text += fmt::format("{}{} {} has {}", text.empty() ? "" : ", ", kernel->name, pass,
                        counted(static_cast<std::size_t>(ctas), "CTA"));
  }
  if (text.empty()) return "";
  return fmt::format("{} for the {} SMs of {}: rates and times are still those of the whole chip", text,
                     machine.sm_count.value, machine.name);
}

/// Each once, in the order in which they come first.
class Warnings {
 public:
  void add(const std::string& warning) {
    if (warning.empty() || std::find(all_.begin(), all_.end(), warning) != all_.end()) return;
    all_.push_back(warning);
  }
  std::string lines() const {
    constexpr std::size_t kMost = 6;
    std::string text;
    for (std::size_t i = 0; i < std::min(kMost, all_.size()); ++i) text += wrapped("warning: " + all_[i]);
    if (all_.size() > kMost) text += fmt::format("warning: and {} more like these\n", all_.size() - kMost);
    return text;
  }

 private:
  std::vector<std::string> all_;
};

}  // namespace

std::string warning_lines(const std::vector<SimulateJob>& jobs, const SimulationOptions& how) {
  Warnings warnings;
  for (const SimulateJob& job : jobs) {
    warnings.add(chip_warning(job));
    warnings.add(shared_warning(job, how));
    warnings.add(memory_warning(job));
  }
  for (const SimulateJob& job : jobs) warnings.add(grid_warning(jobs, *job.machine));
  return warnings.lines();
}

}  // namespace tilescope::cli
