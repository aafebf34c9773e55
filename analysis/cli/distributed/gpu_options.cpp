// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/distributed/gpu_options.hpp"

#include "analysis/cli/options/parse_text.hpp"

namespace tilescope::cli {

void GpuOptions::add_to(CLI::App& command, const std::vector<std::string>& others) {
  constexpr const char* kGroup = "Several GPUs";
  CLI::Option* const gpus =
      command.add_option("--gpus", gpus_, "so many GPUs share the problem, by --schedule")
          ->type_name("N")
          ->group(kGroup);
  for (const std::string& other : others) gpus->excludes(command.get_option(other));
  command.add_option("--schedule", schedule_, "how they share it (tilescope list schedules); default zigzag")
      ->type_name("NAME")
      ->group(kGroup);
  command
      .add_option("--ulysses", ulysses_,
                  "of ulysses-ring: GPUs that share heads; default the most that divide GPUs and heads")
      ->type_name("N")
      ->group(kGroup);
}

void GpuOptions::require_complete() const {
  if (gpus_) return;
  if (schedule_) throw BadInput("--schedule", *schedule_, "must stand with --gpus N");
  if (ulysses_) throw BadInput("--ulysses", *ulysses_, "must stand with --gpus N");
}

DistributedOptions GpuOptions::options() const {
  require_complete();
  DistributedOptions options;
  options.ranks = static_cast<int>(parse_integer_in("gpus", *gpus_, 1, kMostRanks));
  if (schedule_) options.schedule = parse_link_schedule(*schedule_);
  if (ulysses_) options.ulysses = static_cast<int>(parse_integer_in("ulysses", *ulysses_, 1, kMostRanks));
  return options;
}

}  // namespace tilescope::cli
