// SPDX-License-Identifier: Apache-2.0
// The options that choose a kernel and how it cuts and orders its tiles.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {

/// --kernel, --tile, --backward, --order, --scan, --fp8-sums, --diagonal-slices. Must outlive the parsing.
class KernelOptions {
 public:
  /// With `several`, --kernel may be given more than once.
  void add_to(CLI::App& command, bool several = false);

  /// Whether --kernel was given.
  bool given() const { return !names_.empty(); }
  /// The kernels named, or those of `otherwise`. @throws BadInput
  std::vector<const Kernel*> kernels(const std::vector<std::string>& otherwise) const;
  /// The kernel's own choices with the given ones in their place. @throws BadInput for one that it lacks
  ProgramOptions program_options(const Kernel& kernel, const AttentionProblem& problem) const;
  /// The same with the tiles that `bench --tune` chose on this device, unless --tile was given or
  /// TILESCOPE_DISABLE_AUTOTUNE is set. @param tiles the file, by default that of tile_table_path()
  ProgramOptions tuned_options(const Kernel& kernel, const AttentionProblem& problem,
                               const std::string& tiles = "") const;
  bool tile_given() const { return tile_.has_value(); }

 private:
  ProgramOptions chosen_options(const Kernel& kernel, const AttentionProblem& problem) const;

  bool several_ = false;
  std::vector<std::string> names_;
  std::optional<TileShape> tile_;
  std::optional<std::string> backward_, order_, scan_, fp8_sums_;
  std::optional<int> slices_;
};

}  // namespace tilescope::cli
