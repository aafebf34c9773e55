// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/options/kernel_options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "analysis/records/tile_table.hpp"
#include "common/log.hpp"
#include "cpu_ref/launch/launch_text.hpp"

namespace tilescope::cli {
namespace {

constexpr const char* kSwitch = "on|off";  // alone it means on

constexpr KernelChoiceOption kChoices[] = {
    {"tile", "MxN", "block_m x block_n of every pass; default: the kernel's choice",
     [](KernelChoices& choices, const std::string& field, const std::string& value) {
       choices.tile = parse_tile(field, value);
     }},
    {"backward", "split|fused|q-outer|single-launch|ordered",
     "order of the backward pass; default: the kernel's first",
     [](KernelChoices& choices, const std::string&, const std::string& value) {
       choices.backward = parse_backward_order(value);
     }},
    {"order", "row-major|longest-first|head-swizzled",
     "order in which CTAs are issued; default: the kernel's",
     [](KernelChoices& choices, const std::string&, const std::string& value) {
       choices.order = parse_tile_order(value);
     }},
    {"scan", "ascending|descending|sawtooth", "order in which a CTA walks its tiles; default ascending",
     [](KernelChoices& choices, const std::string&, const std::string& value) {
       choices.scan = parse_scan(value);
     }},
    {"fp8-sums", "fp32|two-level|fast",
     "how sums of fp8 products are kept. fp32: in fp32; two-level: within a tile by the tensor cores, in 13 "
     "bits, and over tiles in fp32; fast: all by the tensor cores. Default: the kernel's",
     [](KernelChoices& choices, const std::string&, const std::string& value) {
       choices.fp8_sums = parse_fp8_sums(value);
     }},
    {"variant", "VARIANT",
     "a forward pass without one technique, in builds with the tuner: gpu:flash3 no-ping-pong, no-overlap "
     "(its "
     "softmax waits for its own products) or serial (neither); gpu:flash3-basic unspecialised (a thread that "
     "computes loads, too); gpu:flash2-mma normalised (O at each step); default own",
     [](KernelChoices& choices, const std::string&, const std::string& value) {
       choices.variant = parse_variant(value);
     }},
    {"diagonal-slices", "N",
     "cut tiles on the mask's edge into N x N parts, and skip parts that are masked altogether; default 1",
     [](KernelChoices& choices, const std::string& field, const std::string& value) {
       choices.diagonal_slices = static_cast<int>(parse_integer_in(field, value, 1, kMaxDiagonalSlices));
     }},
    {"splits", "POLICY",
     "share the keys of a query tile between CTAs, and combine their results: N equal shares, auto as many "
     "as "
     "fill the SMs, fixed:KEYS of so many keys each, which no batch changes; default the kernel's own, "
     "mostly none",
     [](KernelChoices& choices, const std::string& field, const std::string& value) {
       choices.splits = parse_split_policy(field, value);
     }},
    {"pack-gqa", kSwitch,
     "the query heads of a group in one tile, so that K and V are loaded once; default the kernel's own",
     [](KernelChoices& choices, const std::string& field, const std::string& value) {
       if (value != "on" && value != "off") throw BadInput(field, value, "must be on or off");
       choices.pack_gqa = value == "on";
     }},
    {"query-splits", "N",
     "share each key tile of a fused or ordered backward pass between N CTAs, which divide the query heads "
     "of its group and then the queries; default: the kernel's choice",
     [](KernelChoices& choices, const std::string& field, const std::string& value) {
       choices.query_splits = static_cast<int>(parse_integer_in(field, value, 1, kMaxSplits));
     }},
};

/// What runs and why: "cpu:flash2 on B1 H8 N1024 D64 fp32: forward 64x128, dkdvdq 64x128, row-major; tiles:
/// ...".
void log_choice(const Kernel& kernel, const AttentionProblem& problem, const ProgramOptions& options,
                const std::string& reason) {
  log_text(LogLevel::debug, [&] {
    std::string text = std::string(kernel.name) + " on " + describe(problem) + ":";
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (const PassName pass : tiled_passes(kernel.algorithm, direction, options.backward)) {
        text += " " + std::string(to_string(pass)) + " " + to_string(options[pass].tile) +
                launch_text(options[pass].launch) + ",";
      }
    }
    if (options.diagonal_slices > 1) {
      text += " " + std::to_string(options.diagonal_slices) + " diagonal slices,";
    }
    if (options.splits != SplitPolicy{}) text += " splits " + to_string(options.splits) + ",";
    if (options.pack_gqa) text += " heads packed,";
    if (const int sharers = options.kv_tile_sharers(); sharers > 1) {
      text += " query splits " + std::to_string(sharers) + ",";
    }
    return text + " CTAs " + std::string(to_string(options.order)) + ", tiles " +
           std::string(to_string(options.scan)) + "; tiles: " + reason;
  });
}

/// @throws BadInput where so many CTAs cannot share a kv tile of the backward pass
void require_shares(const ProgramOptions& options, int query_splits, const AttentionProblem& problem) {
  const auto refuse = [query_splits](const std::string& allowed) {
    throw BadInput("query-splits", std::to_string(query_splits), allowed);
  };
  if (options.kv_tile_sharers() != query_splits) {
    refuse(fmt::format("must be 1 with --backward {}: CTAs share key tiles in the orders fused and ordered",
                       to_string(options.backward)));
  }
  const int group = static_cast<int>(problem.group_size()), heads = head_splits_of(query_splits, group),
            q_tiles = num_m_blocks(problem.band(), options[PassName::dkdvdq].tile);
  if (query_splits / heads > q_tiles) {
    refuse(fmt::format("must leave each CTA a query tile: a key tile is seen by {} with {}",
                       counted(group, "query head"), counted(q_tiles, "query tile")));
  }
}

}  // namespace

ProgramOptions KernelChoices::apply_to(ProgramOptions options, const AttentionProblem& problem) const {
  if (tile) options.set_tile(*tile);
  if (backward) options.backward = *backward;
  if (order) options.set_order(*order);
  if (scan) options.scan = *scan;
  if (fp8_sums) options.fp8_sums = *fp8_sums;
  if (variant) options.variant = *variant;
  if (diagonal_slices) options.diagonal_slices = *diagonal_slices;
  if (splits) options.splits = *splits;
  if (pack_gqa) options.pack_gqa = *pack_gqa;
  if (query_splits) {
    options.set_query_splits(*query_splits);
    require_shares(options, *query_splits, problem);
  }
  return options;
}

std::span<const KernelChoiceOption> kernel_choice_options() { return kChoices; }

void KernelOptions::add_to(CLI::App& command, bool several) {
  constexpr const char* kGroup = "Kernel";
  several_ = several;
  command
      .add_option("--kernel", names_,
                  several ? "its name (tilescope list kernels); several with commas, or by repeating it"
                          : "its name (tilescope list kernels); default cpu:flash2")
      ->type_name("KERNEL")
      ->expected(1, several ? CLI::detail::expected_max_vector_size : 1)
      ->allow_extra_args(false)
      ->group(kGroup);
  for (const KernelChoiceOption& choice : kChoices) {
    CLI::Option* const option =
        command
            .add_option_function<std::string>(
                std::string("--") + choice.name,
                [this, &choice](const std::string& value) { choice.set(choices_, choice.name, value); },
                choice.help)
            ->type_name(choice.type)
            ->group(kGroup);
    if (std::string_view(choice.type) == kSwitch) option->expected(0, 1)->default_str("on");
  }
}

std::vector<const Kernel*> KernelOptions::kernels(const std::vector<std::string>& otherwise) const {
  std::vector<const Kernel*> kernels;
  for (const std::string& names : given() ? names_ : otherwise) {
    const std::vector<std::string> each = several_ ? words_of_list(names) : std::vector{names};
    for (const std::string& name : each) kernels.push_back(&find_kernel(name));
  }
  return kernels;
}

ProgramOptions KernelOptions::program_options(const Kernel& kernel, const AttentionProblem& problem) const {
  const ProgramOptions options = chosen_options(kernel, problem);
  log_choice(kernel, problem, options, tile_given() ? "as --tile says" : "the kernel's own");
  return options;
}

ProgramOptions KernelOptions::chosen_options(const Kernel& kernel, const AttentionProblem& problem) const {
  if (choices_.backward) backward_order_of(kernel, std::string(to_string(*choices_.backward)));  // or refuses
  return choices_.apply_to(kernel.default_options(problem), problem);
}

ProgramOptions KernelOptions::tuned_options(const Kernel& kernel, const AttentionProblem& problem,
                                            const std::string& tiles) const {
  ProgramOptions options = chosen_options(kernel, problem);
  const auto told = [&](const std::string& reason) {
    log_choice(kernel, problem, options, reason);
    return options;
  };
  if (tile_given()) return told("as --tile says");
  if (options.diagonal_slices > 1) return told("the kernel's own, which alone are cut finer");
  if (autotune_disabled()) return told("the kernel's own, since TILESCOPE_DISABLE_AUTOTUNE is set");
  if (!kernel.tile_choices) return told("the kernel's own; it takes any");
  const std::optional<DeviceFacts> device = device_facts();
  if (!device) return told("the kernel's own; there is no device that they could be tuned for");
  if (!kHasTuner) return told("the kernel's own; this build has no others");
  const std::string path = tiles.empty() ? tile_table_path() : tiles;
  const ProgramOptions own = options;
  options = read_tile_table(path).apply(kernel.name, problem, device->name, options,
                                        [&](PassName pass) { return kernel.pass_choices(problem, pass); });
  if (options.backward ==
      BackwardOrder::single_launch) {  // in one launch, which has the kernel's own tiles alone
    for (const PassName pass : {PassName::dkdv, PassName::dq}) options[pass] = own[pass];
  }
  return told(options == own ? "the kernel's own; " + path + " prefers none for " + device->name
                             : "as tuned on " + device->name + ", from " + path);
}

void note_device(MachineInfo& machine, const std::vector<const Kernel*>& kernels) {
  const bool any = std::ranges::any_of(kernels, [](const Kernel* kernel) { return kernel->on_gpu(); });
  if (!any) return;
  const DeviceFacts device = device_facts().value();
  machine.name = device.name;
  machine.chip = device.chip.name();
  machine.driver = device.driver;
  machine.cuda = device.cuda;
}

}  // namespace tilescope::cli
