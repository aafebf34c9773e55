// SPDX-License-Identifier: Apache-2.0
// The options that spread a problem over several GPUs: --gpus, --schedule, --ulysses, --transport,
// --processes.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/execution/enqueue_plan.hpp"
#include "distributed/processes/process_group.hpp"

namespace tilescope::cli {

/// Must outlive the parsing.
class GpuOptions {
 public:
  /// @param others  options of the command, added before, that mean nothing with --gpus and are refused there
  /// @param on_devices  whether the command can run the schedule, and --transport says what carries its
  /// copies
  void add_to(CLI::App& command, const std::vector<std::string>& others, bool on_devices);
  /// Whether --gpus asks for several ranks, or for one as several would be.
  bool given() const { return gpus_.has_value(); }
  /// zigzag without --schedule. @throws BadInput also where another of the options stands without --gpus
  DistributedOptions options() const;
  /// The same of --schedule NAME,NAME,...
  std::vector<DistributedOptions> all() const;
  /// The same of --gpus N,N,... as well.
  std::vector<DistributedOptions> across() const;
  Transport transport() const;  // with --processes NCCL
  /// @throws BadInput with --processes, which `why` says that the command cannot take
  void require_one_process(const std::string& why) const;
  /// With --processes: the processes of the launcher, connected; else null. What this one knows to be
  /// refused, it refuses before it waits for the others.
  /// @throws BadInput where ranks are threads (not `on_devices`), MachineLacks without a GPU
  std::shared_ptr<ProcessGroup> processes(bool on_devices) const;
  /// @throws BadInput if an option that needs --gpus stands without it
  void require_complete() const;

 private:
  std::optional<std::string> gpus_, schedule_, ulysses_, transport_;
  bool processes_ = false;
};

}  // namespace tilescope::cli
