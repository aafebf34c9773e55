// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/options/kernel_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/cli/options/parse_text.hpp"
#include "analysis/records/tile_table.hpp"
#include "common/nearest_names.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {

std::vector<const Kernel*> all_kernels() {
  std::vector<const Kernel*> kernels;
  for (const Kernel& kernel : cpu_kernels()) kernels.push_back(&kernel);
  for (const Kernel& kernel : gpu_kernels()) kernels.push_back(&kernel);
  return kernels;
}

const Kernel& find_kernel(const std::string& name) {
  std::vector<std::string> names;
  for (const Kernel* kernel : all_kernels()) {
    if (kernel->name == name) return *kernel;
    names.emplace_back(kernel->name);
  }
  throw unknown_name("kernel", name, names);
}

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
  options.backward = parse_backward_order(*backward_);
  const std::vector<BackwardOrder>& offered = kernel.backward_orders;
  if (std::find(offered.begin(), offered.end(), options.backward) == offered.end()) {
    std::vector<std::string_view> names;
    for (BackwardOrder order : offered) names.push_back(to_string(order));
    throw BadInput("backward", *backward_,
                   offered.empty()
                       ? fmt::format("must be left out, {} has only one order", kernel.name)
                       : fmt::format("must be one that {} has: {}", kernel.name, fmt::join(names, ", ")));
  }
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

void require_supported(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                       const ProgramOptions& options) {
  const std::optional<std::string> reason = kernel.refusal(problem, direction, options);
  if (!reason) return;
  std::vector<std::string_view> able;
  for (const Kernel* other : all_kernels()) {
    const ProgramOptions own = other->default_options(problem);
    if (!other->refusal(problem, direction, own)) able.push_back(other->name);
  }
  const std::string others =
      able.empty() ? "" : fmt::format("; this problem runs on {}", fmt::join(able, ", "));
  throw BadInput("kernel", std::string(kernel.name), *reason + others);
}

bool is_runnable(const Kernel& kernel) {
  return kernel.run != nullptr && !(kernel.name.starts_with("gpu:") && device_lack());
}

void require_runnable(const Kernel& kernel) {
  if (is_runnable(kernel)) return;
  throw MachineLacks(
      fmt::format("{} cannot run: {}", kernel.name, device_lack().value_or("this build has no code for it")));
}

}  // namespace tilescope::cli
