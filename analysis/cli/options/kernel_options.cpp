// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/options/kernel_options.hpp"

#include "analysis/cli/options/parse_text.hpp"
#include "analysis/records/tile_table.hpp"

namespace tilescope::cli {

void KernelOptions::add_to(CLI::App& command, bool several) {
  constexpr const char* kGroup = "Kernel";
  command
      .add_option("--kernel", names_,
                  several ? "its name (tilescope list kernels); may be repeated"
                          : "its name (tilescope list kernels)")
      ->type_name("KERNEL")
      ->expected(1, several ? CLI::detail::expected_max_vector_size : 1)
      ->allow_extra_args(false)
      ->group(kGroup);
  command
      .add_option_function<std::string>(
          "--tile", [this](const std::string& text) { tile_ = parse_tile("tile", text); },
          "block_m x block_n of every pass; default: the kernel's choice")
      ->type_name("MxN")
      ->group(kGroup);
  const auto add_name = [&](const char* flag, const char* type, auto& target, const char* help) {
    command.add_option(flag, target, help)->type_name(type)->group(kGroup);
  };
  add_name("--backward", "split|fused|rows", backward_,
           "order of the backward pass; default: the kernel's first");
  add_name("--order", "row-major|longest-first|head-swizzled", order_,
           "order in which CTAs are issued; default: the kernel's");
  add_name("--scan", "ascending|descending|sawtooth", scan_,
           "order in which a CTA walks its tiles; default ascending");
}

std::vector<const Kernel*> KernelOptions::kernels(const std::vector<std::string>& otherwise) const {
  std::vector<const Kernel*> kernels;
  for (const std::string& name : given() ? names_ : otherwise) kernels.push_back(&find_kernel(name));
  return kernels;
}

ProgramOptions KernelOptions::program_options(const Kernel& kernel, const AttentionProblem& problem) const {
  ProgramOptions options = kernel.default_options(problem);
  if (tile_) options.set_tile(*tile_);
  if (order_) options.order = parse_tile_order(*order_);
  if (scan_) options.scan = parse_scan(*scan_);
  if (!backward_) return options;
  options.backward = backward_order_of(kernel, *backward_);
  return options;
}

ProgramOptions KernelOptions::tuned_options(const Kernel& kernel, const AttentionProblem& problem,
                                            const std::string& tiles) const {
  ProgramOptions options = program_options(kernel, problem);
  if (tile_ || autotune_disabled()) return options;
  const std::optional<DeviceFacts> device = device_facts();
  if (!device || !kernel.tile_choices || !kHasTuner) return options;
  return read_tile_table(tiles.empty() ? tile_table_path() : tiles)
      .apply(kernel.name, problem, device->name, options,
             [&](PassName pass) { return kernel.tile_choices(problem, pass); });
}

}  // namespace tilescope::cli
