// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/distributed/gpu_options.hpp"

#include "analysis/cli/options/parse_text.hpp"
#include "distributed/devices/device_ranks.hpp"

namespace tilescope::cli {

void GpuOptions::add_to(CLI::App& command, const std::vector<std::string>& others, bool on_devices) {
  constexpr const char* kGroup = "Several GPUs";
  CLI::Option* const gpus =
      command.add_option("--gpus", gpus_, "so many GPUs share the problem, by --schedule")
          ->type_name(on_devices ? "N" : "N,N,...")
          ->group(kGroup);
  for (const std::string& other : others) gpus->excludes(command.get_option(other));
  command.add_option("--schedule", schedule_, "how they share it (tilescope list schedules); default zigzag")
      ->type_name("NAMES")
      ->group(kGroup);
  command
      .add_option("--ulysses", ulysses_,
                  "of ulysses-ring: GPUs that share heads; default the most that divide GPUs and heads")
      ->type_name("N")
      ->group(kGroup);
  if (!on_devices) return;
  command.add_option("--transport", transport_, "what carries copies between GPUs (copy-engine)")
      ->type_name("copy-engine|nccl")
      ->group(kGroup);
  command
      .add_flag("--processes", processes_,
                "each GPU has a process, which torchrun --no-python, mpirun or srun has started; by NCCL")
      ->group(kGroup);
}

void GpuOptions::require_complete() const {
  if (gpus_) return;
  if (schedule_) throw BadInput("--schedule", *schedule_, "must stand with --gpus N");
  if (ulysses_) throw BadInput("--ulysses", *ulysses_, "must stand with --gpus N");
  if (transport_) throw BadInput("--transport", *transport_, "must stand with --gpus N");
  if (processes_) throw BadInput("--processes", "given", "must stand with --gpus N");
}

std::vector<DistributedOptions> GpuOptions::across() const {
  require_complete();
  DistributedOptions options;
  if (ulysses_) options.ulysses = static_cast<int>(parse_integer_in("ulysses", *ulysses_, 1, kMostRanks));
  std::vector<DistributedOptions> all;
  for (const std::string& gpus : words_of_list(*gpus_)) {
    options.ranks = static_cast<int>(parse_integer_in("gpus", gpus, 1, kMostRanks));
    for (const std::string& name :
         words_of_list(schedule_.value_or(std::string(to_string(LinkSchedule::zigzag))))) {
      options.schedule = parse_link_schedule(name);
      all.push_back(options);
    }
  }
  return all;
}

std::vector<DistributedOptions> GpuOptions::all() const {
  require_complete();
  if (words_of_list(*gpus_).size() > 1) throw BadInput("--gpus", *gpus_, "must be one number here");
  return across();
}

DistributedOptions GpuOptions::options() const {
  const std::vector<DistributedOptions> options = all();
  if (options.size() > 1) throw BadInput("--schedule", *schedule_, "must be one name here");
  return options.front();
}

Transport GpuOptions::transport() const {
  const Transport otherwise = processes_ ? Transport::nccl : Transport::copy_engine;
  const Transport transport = transport_ ? parse_transport(*transport_) : otherwise;
  if (processes_ && transport != Transport::nccl)
    throw BadInput("--transport", *transport_,
                   "must be nccl with --processes: copy engines need one process");
  return transport;
}

void GpuOptions::require_one_process(const std::string& why) const {
  if (processes_) throw BadInput("--processes", "given", "must be left out: " + why);
}

std::shared_ptr<ProcessGroup> GpuOptions::processes(bool on_devices) const {
  if (!processes_) return nullptr;
  if (!on_devices)
    throw BadInput("--processes", "given", "must be left out with cpu:flash2, whose ranks are threads");
  const ProcessPlace place = launched_process();
  const int gpus = all().front().ranks;
  if (place.ranks != gpus) {
    throw BadInput("--gpus", std::to_string(gpus),
                   "must be " + std::to_string(place.ranks) + " with --processes: so many were started");
  }
  require_devices(1);
  return std::make_shared<ProcessGroup>(place);
}

}  // namespace tilescope::cli
