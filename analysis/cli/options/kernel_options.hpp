// SPDX-License-Identifier: Apache-2.0
// The options that choose a kernel and how it cuts and orders its tiles.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/records/run_record.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {

/// What may stand in place of a kernel's own choices.
struct KernelChoices {
  std::optional<TileShape> tile;
  std::optional<BackwardOrder> backward;
  std::optional<TileOrder> order;
  std::optional<Scan> scan;
  std::optional<Fp8Sums> fp8_sums;
  std::optional<Variant> variant;
  std::optional<int> diagonal_slices;
  std::optional<SplitPolicy> splits;
  std::optional<bool> pack_gqa;
  std::optional<int> query_splits;

  /// `options` with the choices in their place. @throws BadInput where more CTAs than can are to share a kv
  /// tile
  ProgramOptions apply_to(ProgramOptions options, const AttentionProblem& problem) const;
};

/// One of them, which is an option, an axis of sweeps, and a word behind a kernel's name in `compare`.
struct KernelChoiceOption {
  const char *name, *type, *help;  // "diagonal-slices"
  void (*set)(KernelChoices& choices, const std::string& field, const std::string& value);
};
std::span<const KernelChoiceOption> kernel_choice_options();

/// --kernel, --tile, --backward, --order, --scan, --fp8-sums, --variant, --diagonal-slices, --splits,
/// --pack-gqa, --query-splits. Must outlive the parsing.
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
  bool tile_given() const { return choices_.tile.has_value(); }

 private:
  ProgramOptions chosen_options(const Kernel& kernel, const AttentionProblem& problem) const;

  bool several_ = false;
  std::vector<std::string> names_;
  KernelChoices choices_;
};

/// Notes the device here where one of the kernels runs on a GPU. Precondition: they can run here.
void note_device(MachineInfo& machine, const std::vector<const Kernel*>& kernels);

}  // namespace tilescope::cli
