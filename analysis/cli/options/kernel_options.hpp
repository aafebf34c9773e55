// SPDX-License-Identifier: Apache-2.0
// The options that choose a kernel and how it cuts and orders its tiles, and the kernels of every room.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope::cli {

/// Every registered kernel, CPU first.
std::vector<const Kernel*> all_kernels();
/// @throws BadInput naming the nearest
const Kernel& find_kernel(const std::string& name);

/// --kernel, --tile, --backward, --order, --scan. Must outlive the parsing.
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
  std::vector<std::string> names_;
  std::optional<TileShape> tile_;
  std::optional<std::string> backward_, order_, scan_;
};

/// @throws BadInput with the kernel's reason and those that can, when it refuses a direction of the problem
void require_supported(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                       const ProgramOptions& options);

/// Whether this build has the kernel's code, and this machine the device that it needs.
bool is_runnable(const Kernel& kernel);
/// @throws MachineLacks when this build or machine cannot run the kernel, with what would help
void require_runnable(const Kernel& kernel);

}  // namespace tilescope::cli
