// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/kernels/kernel.hpp"

#include <algorithm>

#include "cpu_ref/launch/launch_text.hpp"

namespace tilescope {
namespace {

std::string text(TileShape tile) { return std::to_string(tile.block_m) + "x" + std::to_string(tile.block_n); }

/// "8.0"
std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

std::optional<std::string> tile_refusal(const AttentionProblem& problem, PassName pass, TileShape asked,
                                        const std::vector<TileShape>& compiled) {
  if (std::ranges::find(compiled, asked) != compiled.end()) return std::nullopt;
  std::string shapes;
  for (const TileShape& tile : compiled) shapes += (shapes.empty() ? "" : " or ") + text(tile);
  return "is compiled for " + std::string(to_string(pass)) + " tiles of " + shapes + " at head_dim " +
         std::to_string(problem.head_dim) + ", not " + text(asked);
}

std::string text(const PassChoice& choice) { return text(choice.tile) + launch_text(choice.launch); }

std::optional<std::string> launch_refusal(PassName pass, const PassOptions& asked,
                                          const std::vector<PassChoice>& compiled) {
  const PassChoice choice{asked.tile, asked.launch};
  if (asked.launch == PassLaunch{}) return std::nullopt;
  if (std::ranges::find(compiled, choice) != compiled.end()) return std::nullopt;
  return "is not compiled for " + std::string(to_string(pass)) + " tiles of " + text(choice);
}

/// "fused, split and rows"
std::string names_of(const std::vector<BackwardOrder>& orders, std::string_view last_separator) {
  std::string names;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const bool last = i + 1 == orders.size();
    names += std::string(i == 0 ? "" : last ? last_separator : ", ") + std::string(to_string(orders[i]));
  }
  return names;
}

bool has_order(const std::vector<BackwardOrder>& orders, BackwardOrder asked) {
  return std::ranges::find(orders, asked) != orders.end();
}

std::optional<std::string> order_refusal(const std::vector<BackwardOrder>& orders, BackwardOrder asked) {
  if (orders.empty() || has_order(orders, asked)) return std::nullopt;
  const std::string names = names_of(orders, " and ");
  return "has the backward " + std::string(orders.size() > 1 ? "orders " : "order ") + names + ", not " +
         std::string(to_string(asked));
}

/// In fp8 alone; elsewhere the choice says nothing.
std::optional<std::string> sums_refusal(const Kernel& kernel, const AttentionProblem& problem,
                                        const ProgramOptions& options) {
  const std::vector<Fp8Sums>& has = kernel.fp8_sums;
  if (!is_fp8(problem.dtype) || std::ranges::find(has, options.fp8_sums) != has.end()) {
    return std::nullopt;
  }
  std::string names;
  for (const Fp8Sums sums : has) names += (names.empty() ? "" : " or ") + std::string(to_string(sums));
  return "sums products of fp8 " + names + ", not " + std::string(to_string(options.fp8_sums));
}

std::optional<std::string> variant_refusal(const Kernel& kernel, Direction direction,
                                           const ProgramOptions& options) {
  if (options.variant == Variant::own) return std::nullopt;
  const std::vector<Variant>& has = kernel.variants;
  const bool known = std::ranges::find(has, options.variant) != has.end();
  if (known && direction == Direction::forward) return std::nullopt;
  return "has no variant " + std::string(to_string(options.variant)) + (known ? " of its backward pass" : "");
}

/// A kernel with tiles on chip has one descale at hand for each of them.
std::optional<std::string> descales_refusal(const Kernel& kernel, const AttentionProblem& problem,
                                            const ProgramOptions& options) {
  const TileShape block = problem.descales.block, tile = options[PassName::forward].tile;
  if (!problem.descales.by_block() || kernel.algorithm == Algorithm::standard || block == tile) {
    return std::nullopt;
  }
  return "takes descales of heads, or of its tiles, descale_block " + text(tile) + ", not " + text(block);
}

/// Heads of one q tile have one descale.
std::optional<std::string> packing_refusal(const AttentionProblem& problem, Direction direction,
                                           const ProgramOptions& options) {
  const bool packs = options.pack_gqa && direction == Direction::forward;
  if (!packs || !problem.descales.by_block()) return std::nullopt;
  return "packs heads only without descale_block";
}

/// A GPU kernel cuts its own tiles alone, and each pass in a launch of its own.
std::optional<std::string> slices_refusal(const Kernel& kernel, const AttentionProblem& problem,
                                          Direction direction, const ProgramOptions& options) {
  const int slices = options.diagonal_slices, smallest = kernel.smallest_part;
  if (slices == 1) return std::nullopt;
  if (!required_features(options, direction).empty()) {
    return "cuts tiles finer only without splits and packing, not with diagonal-slices " +
           std::to_string(slices);
  }
  const std::string asked = ", not with diagonal-slices " + std::to_string(slices);
  if (smallest == 0) return "computes the tiles that a mask cuts whole" + asked;
  if (problem.mask.any()) return "cuts tiles finer only without mask" + asked;
  for (int i = 0; i < kNumFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    if (kernel.lacks_in_parts.has(feature) && required_features(problem).has(feature)) {
      return "cuts tiles finer only without " + std::string(to_string(feature)) + asked;
    }
  }
  if (kernel.tile_choices && options.backward == BackwardOrder::single_launch &&
      direction == Direction::backward) {
    return "computes the tiles that a mask cuts whole in the single-launch order" + asked;
  }
  for (const PassName pass : tiled_passes(kernel.algorithm, direction, options.backward)) {
    const TileShape tile = options[pass].tile;
    const bool divides =
        slices > 0 && tile.block_m % (slices * smallest) == 0 && tile.block_n % (slices * smallest) == 0;
    if (!divides) {
      const std::string parts =
          smallest == 1 ? "equal parts" : "parts whose sides are multiples of " + std::to_string(smallest);
      return "cuts tiles into " + parts + ", which those of pass " + std::string(to_string(pass)) + ", " +
             text(tile) + ", do not have with diagonal-slices " + std::to_string(slices);
    }
    if (!kernel.tile_choices) continue;
    if (tile == kernel.tile_choices(problem, pass).front() && options[pass].launch == PassLaunch{}) continue;
    return "cuts its own tiles finer alone, not the " + text(tile) + " of pass " +
           std::string(to_string(pass));
  }
  return std::nullopt;
}

}  // namespace

ProgramOptions options_with_shared_dq(const Kernel& kernel, const AttentionProblem& problem) {
  ProgramOptions options = kernel.default_options(problem);
  options.dq_start = DqStart::cleared;
  options.set_query_splits(1);
  return options;
}

BackwardOrder backward_order_of(const Kernel& kernel, const std::string& name) {
  const BackwardOrder order = parse_backward_order(name);
  const std::string its(kernel.name);
  if (has_order(kernel.backward_orders, order)) return order;
  throw BadInput("backward", name,
                 kernel.backward_orders.empty()
                     ? "must be left out, " + its + " has only one order"
                     : "must be one that " + its + " has: " + names_of(kernel.backward_orders, ", "));
}

std::optional<std::string> Kernel::refusal(const AttentionProblem& problem, Direction direction,
                                           const ProgramOptions& options) const {
  if (auto missing = missing_feature(can, problem, direction)) return missing;
  if (auto missing = missing_feature(can.of(direction), required_features(options, direction)))
    return missing;
  if (auto refusal = packing_refusal(problem, direction, options)) return refusal;
  if (const auto lack = direction == Direction::forward ? forward_lack : backward_lack) {
    if (auto refusal = lack(problem, options)) return refusal;
  }
  if (direction == Direction::backward) {
    if (auto refusal = order_refusal(backward_orders, options.backward)) return refusal;
  }
  if (auto refusal = variant_refusal(*this, direction, options)) return refusal;
  if (auto refusal = sums_refusal(*this, problem, options)) return refusal;
  if (auto refusal = descales_refusal(*this, problem, options)) return refusal;
  if (auto refusal = slices_refusal(*this, problem, direction, options)) return refusal;
  if (!tile_choices) return std::nullopt;
  for (const PassName pass : tiled_passes(algorithm, direction, options.backward)) {
    if (auto refusal = tile_refusal(problem, pass, options[pass].tile, tile_choices(problem, pass)))
      return refusal;
    if (!pass_choices) continue;
    if (auto refusal = launch_refusal(pass, options[pass], pass_choices(problem, pass))) return refusal;
  }
  return std::nullopt;
}

std::optional<std::string> Kernel::chip_lack(const Chip& chip, const AttentionProblem& problem,
                                             Direction direction, const ProgramOptions& options) const {
  if (!launch_shape) return std::nullopt;
  if (!chips.has(chip.compute_capability)) {
    return "needs compute capability " + capability_text(chips.first) +
           (chips.last == chips.first ? ""
            : chips.has(1000)         ? " or newer"
                                      : " ... " + capability_text(chips.last)) +
           ", this device has " + capability_text(chip.compute_capability);
  }
  if (is_fp8(problem.kv_type()) && chip.compute_capability < kFirstWithFp8) {
    return "needs compute capability " + capability_text(kFirstWithFp8) + " or newer for " +
           std::string(to_string(problem.kv_type())) + ", this device has " +
           capability_text(chip.compute_capability);
  }
  for (const TileProgram& program : programs(direction, problem, options)) {
    const std::int64_t bytes = launch_shape(program, chip).shared_bytes;
    if (bytes <= chip.shared_bytes_per_cta) continue;
    return "takes " + std::to_string((bytes + 1023) / 1024) + " KiB of shared memory a CTA in pass " +
           std::string(to_string(program.name)) + ", " + chip.name() + " has " +
           std::to_string(chip.shared_bytes_per_cta / 1024);
  }
  return std::nullopt;
}

}  // namespace tilescope
