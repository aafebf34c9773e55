// SPDX-License-Identifier: Apache-2.0
#include "analysis/explain/launch_evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/nearest_names.hpp"
#include "common/number_format.hpp"
#include "common/pattern.hpp"

namespace tilescope {
namespace {

/// What a pattern's groups are, in order: m and n of the tile, M and N of a part of it, d for head_dim.
struct TilePattern {
  Pattern pattern;
  const char* groups;
};
const std::vector<TilePattern>& tile_patterns() {
  static const std::vector<TilePattern> all = {
      {Pattern("Flash_(?:fwd|bwd)_kernel_traits<(\\d+), ?(\\d+), ?(\\d+),"), "dmn"},
      // FlashAttention-3 gives tile shapes as tuples, behind that of the cluster.
      {Pattern("flash.*tuple<(?:cute::)?C<\\d+>, ?(?:cute::)?C<\\d+>, ?(?:cute::)?C<\\d+> ?>.*?"
               "tuple<(?:cute::)?C<(\\d+)>, ?(?:cute::)?C<(\\d+)>, ?(?:cute::)?C<(\\d+)> ?>"),
       "mnd"},
      {Pattern("fmha_cutlass[FB]_\\w*?aligned_(\\d+)x(\\d+)"), "mn"},
      {Pattern("cudnn_generated.*flash_fprop_\\w*?knob_\\d+_(\\d+)x(\\d+)x(\\d+)_"), "Mnd"},
      {Pattern("cudnn_generated.*flash_bprop_\\w*?knob_\\d+_(\\d+)x(\\d+)x(\\d+)_"), "MNd"},
  };
  return all;
}

bool holds_any(const std::string& text, std::initializer_list<const char*> words) {
  return std::ranges::any_of(words,
                             [&text](const char* word) { return text.find(word) != std::string::npos; });
}

/// Copies, fills, random numbers, reductions, matrix products: what frameworks launch beside attention.
bool names_other_work(const std::string& name) {
  return holds_any(name, {"at::native", "elementwise", "memcpy", "memset", "cub::", "thrust::", "philox",
                          "curand", "gemm", "nvjet", "cublas", "softmax_warp", "layer_norm", "nccl"}) &&
         !holds_any(name, {"flash", "fmha", "attn", "attention", "sdpa"});
}

/// Whether the name says that the kernel does what a pass around the products does. Their bytes alone say
/// little: every copy to a narrower type has those of `convert`.
bool names_pass(const std::string& name, const std::string& pass) {
  if (pass == "sum") return holds_any(name, {"reduce", "sum"});
  if (pass == "convert") return holds_any(name, {"convert", "postprocess"});
  if (pass == "fill") return holds_any(name, {"clear", "zero", "init"});
  if (pass == "combine") return holds_any(name, {"combine"});
  return holds_any(name, {"delta", "dot_do_o", "preprocess", "do_o", "odo", "row_dot", "rowsum",
                          "per_fused_flex_attention_backward", "red_fused_flex_attention_backward"});
}

/// The one direction that the name states.
std::optional<Direction> named_direction(const std::string& name) {
  const bool backward = holds_any(name, {"bwd", "backward", "bprop", "dkdv", "_dq", "dgrad", "cutlassb"});
  const bool forward = holds_any(name, {"fwd", "forward", "fprop", "cutlassf"});
  if (backward == forward) return std::nullopt;
  return backward ? Direction::backward : Direction::forward;
}

/// Whether the name is that of such a pass and of nothing else.
bool names_no_products(const std::string& name) {
  return holds_any(name, {"preprocess", "postprocess", "convert_d", "dot_do_o", "reduce_head", "combine"});
}

/// Whether the name says that the kernel was made for chips without an engine that copies tiles.
bool names_older_chip(const std::string& name) {
  return holds_any(name, {"sm70", "sm75", "sm80", "flash_fwd_kernel_traits", "flash_bwd_kernel_traits"});
}

/// Whether the name says that it is made for one that has: its operands come whole, not in slices of a warp.
bool names_copy_engine(const std::string& name) { return holds_any(name, {"sm90", "wgmma"}); }

}  // namespace

bool NamedTile::allows(TileShape tile) const {
  const auto is = [](const std::optional<int>& stated, int size) { return !stated || *stated == size; };
  const auto has = [](const std::optional<int>& part, int size) { return !part || size % *part == 0; };
  return is(block_m, tile.block_m) && is(block_n, tile.block_n) && has(of_m, tile.block_m) &&
         has(of_n, tile.block_n);
}

NamedTile tile_in_name(const std::string& name) {
  NamedTile tile;
  for (const TilePattern& known : tile_patterns()) {
    const std::vector<std::string> match = known.pattern.find(name);
    if (match.empty()) continue;
    for (std::size_t i = 1; i < match.size(); ++i) {
      constexpr std::size_t kDigits = 6;
      if (match[i].size() > kDigits) continue;
      const int value = std::stoi(match[i]);
      if (value == 0) continue;
      switch (known.groups[i - 1]) {
        case 'm':
          tile.block_m = value;
          break;
        case 'n':
          tile.block_n = value;
          break;
        case 'M':
          tile.of_m = value;
          break;
        case 'N':
          tile.of_n = value;
          break;
        default:
          tile.head_dim = value;
      }
    }
    break;
  }
  return tile;
}

LaunchEvidence::LaunchEvidence(const KernelGroup& kernel, std::optional<std::int64_t> sm_count)
    : kernel_(kernel),
      sm_count_(sm_count),
      ctas_(kernel.launch.grid[0] * kernel.launch.grid[1] * kernel.launch.grid[2]),
      threads_(kernel.launch.block[0] * kernel.launch.block[1] * kernel.launch.block[2]),
      named_(tile_in_name(kernel.name)),
      name_(lower_case(kernel.name)),
      other_work_(names_other_work(name_)),
      no_products_(names_no_products(name_)),
      by_copy_engine_(names_copy_engine(name_)),
      of_older_chip_(names_older_chip(name_)),
      direction_(named_direction(name_)) {}

bool LaunchEvidence::grid_agrees(const CandidateProgram& candidate) const {
  if (candidate.num_ctas == 0 || candidate.blocks == 0) return false;
  if (candidate.num_ctas == ctas_) return true;
  if (!kernel_.launch.cluster) return false;  // a grid has whole clusters
  const auto& cluster = *kernel_.launch.cluster;
  const std::int64_t size = std::max<std::int64_t>(1, cluster[0] * cluster[1] * cluster[2]);
  return (candidate.blocks + size - 1) / size * size * (candidate.num_ctas / candidate.blocks) == ctas_;
}

/// CTAs that fill the device once or a few times and loop over more work items than they are.
bool LaunchEvidence::persistent(const CandidateProgram& candidate) const {
  if (ctas_ >= candidate.num_ctas) return false;
  constexpr std::int64_t kUnknownDevice = 256, kMostOnSm = 8;
  if (!sm_count_) return ctas_ <= kUnknownDevice;
  std::int64_t cluster = 1;
  if (kernel_.launch.cluster) {
    for (const std::int64_t extent : *kernel_.launch.cluster) cluster *= std::max<std::int64_t>(1, extent);
  }
  const std::int64_t whole = *sm_count_ / cluster * cluster;
  return whole > 0 && ctas_ % whole == 0 && ctas_ / whole <= kMostOnSm;
}

std::optional<std::string> LaunchEvidence::memory_against(const CandidateProgram& candidate) const {
  const LaunchFacts& launch = kernel_.launch;
  const OnChip& chip = candidate.on_chip;
  const auto bytes = [](std::int64_t count) { return format_bytes(static_cast<double>(count)); };
  if (launch.shared_bytes && !chip.in_slices) {
    const std::int64_t shared = *launch.shared_bytes;
    if (shared < chip.largest) {
      return fmt::format("its {} of shared memory do not hold a tile of {}", bytes(shared),
                         bytes(chip.largest));
    }
    // At most a fifth of it is for something else than operands, in up to four stages, and scores.
    constexpr std::int64_t kStages = 4;
    constexpr double kMostUsed = 1.25;
    const std::int64_t used = chip.kept + kStages * chip.streamed + chip.scores;
    if (static_cast<double>(shared) > kMostUsed * static_cast<double>(used)) {
      return fmt::format("its tiles would fill {} of {} of shared memory", bytes(used), bytes(shared));
    }
  }
  if (launch.registers && launch.shared_bytes) {
    constexpr std::int64_t kRegisterBytes = 4;
    const std::int64_t there =
        threads_ * (kRegisterBytes * *launch.registers + launch.local_bytes.value_or(0)) +
        *launch.shared_bytes;
    const std::int64_t needed = chip.sums + chip.scores + (chip.in_slices ? 0 : chip.kept + chip.largest);
    if (needed > there) {
      return fmt::format("its tiles and sums take {}, registers and shared memory of a CTA {}", bytes(needed),
                         bytes(there));
    }
  }
  return std::nullopt;
}

std::optional<std::string> LaunchEvidence::name_against(const CandidateProgram& candidate) const {
  if (!candidate.tiled()) {
    if (candidate.somebodys || names_pass(name_, candidate.name)) return std::nullopt;
    return fmt::format("its name says nothing of {}", candidate.name);
  }
  if (name_.find(candidate.library) == std::string::npos) {
    return "its name is not that of a kernel of " + candidate.library;
  }
  if (candidate.on_chip.in_slices && by_copy_engine_) return "its operands come whole, by its name";
  if (candidate.copy_engine && of_older_chip_) {
    return "its name is that of a chip without copy engine";
  }
  if (no_products_) return "its name is that of a pass without products";
  if (other_work_) return "its name is that of other work";
  if (!candidate.somebodys && direction_ && direction_ != candidate.direction)
    return "its name states the other direction";
  if (!named_.allows(candidate.tile)) return "its name states another tile";
  return std::nullopt;
}

std::optional<std::string> LaunchEvidence::against(const CandidateProgram& candidate) const {
  if (auto said = name_against(candidate)) return said;
  if (candidate.threads != 0 && candidate.threads != threads_) {
    return fmt::format("its CTAs have {} threads, the program's {}", threads_, candidate.threads);
  }
  const bool any_grid = !candidate.tiled() && candidate.num_ctas == 0;
  if (!any_grid && !grid_agrees(candidate) && !(candidate.tiled() && persistent(candidate))) {
    return fmt::format("its grid has {} CTAs, the program {}", ctas_, candidate.num_ctas);
  }
  return candidate.tiled() ? memory_against(candidate) : std::nullopt;
}

double LaunchEvidence::log_odds(const CandidateProgram& candidate) const {
  constexpr double kGrid = 10, kConvention = 3, kOddBlock = 4;
  double odds = grid_agrees(candidate) ? std::log(kGrid) : 0;
  const auto power_of_two = [](int size) { return (size & (size - 1)) == 0; };
  if (!power_of_two(candidate.tile.block_m) || !power_of_two(candidate.tile.block_n))
    odds -= std::log(kOddBlock);
  return candidate.convention.empty() ? odds : odds - std::log(kConvention);
}

}  // namespace tilescope
