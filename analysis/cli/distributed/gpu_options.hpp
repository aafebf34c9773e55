// SPDX-License-Identifier: Apache-2.0
// The options that spread a problem over several GPUs: --gpus, --schedule, --ulysses.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

#include "distributed/schedule/distributed_program.hpp"

namespace tilescope::cli {

/// Must outlive the parsing.
class GpuOptions {
 public:
  /// @param others  options of the command, added before, that mean nothing with --gpus and are refused there
  void add_to(CLI::App& command, const std::vector<std::string>& others);
  /// Whether --gpus asks for several ranks, or for one as several would be.
  bool given() const { return gpus_.has_value(); }
  /// zigzag without --schedule. @throws BadInput also where --schedule or --ulysses stand without --gpus
  DistributedOptions options() const;
  /// @throws BadInput if an option that needs --gpus stands without it
  void require_complete() const;

 private:
  std::optional<std::string> gpus_, schedule_, ulysses_;
};

}  // namespace tilescope::cli
