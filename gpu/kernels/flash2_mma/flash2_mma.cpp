// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash2_mma/flash2_mma.hpp"

#include <algorithm>

#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash2_mma/choices.hpp"
#include "gpu/registry/asked_by.hpp"

namespace tilescope {
namespace {

/// The smallest L2 of a chip that the kernels are meant for: 40 MB (NVIDIA A100 Tensor Core GPU Architecture,
/// section "40 GB HBM2 and 40 MB L2 Cache").
constexpr std::int64_t kSmallestL2Bytes = 40 << 20;

/// Heads whose tensors stay in L2 while the CTAs of an L2 swizzle stream them: q, k, v, dout and the fp32
/// dq_accum of the backward pass are the most. Without the swizzle, longest_first takes all heads in turn and
/// reads everything from DRAM once for each block.
int heads_that_share_l2(const AttentionProblem& problem) {
  constexpr std::int64_t kSectionBytes = kSmallestL2Bytes / 5 * 3;
  const std::int64_t head_bytes = problem.head_dim * (problem.seqlen_q * (2 + 4) + problem.seqlen_k * 2) +
                                  problem.value_dim() * 2 * (problem.seqlen_q + problem.seqlen_k);
  return static_cast<int>(
      std::clamp<std::int64_t>(kSectionBytes / head_bytes, 1, problem.batch * problem.heads));
}

/// Masks of runs and score modifiers: sm80::Features::varied.
bool is_varied(const AttentionProblem& problem) { return problem.mask.any() || problem.score_mods.any(); }

/// Whether the forward pass takes the tiles of fewer keys.
bool narrows_tiles(const AttentionProblem& problem) { return problem.dropout > 0 || is_varied(problem); }

/// Whether plain instances run it, unless it is observed or its rows lie askew.
bool is_plain(const AttentionProblem& problem) {
  return !narrows_tiles(problem) && problem.head_dim % 8 == 0 && problem.key_lengths.empty() &&
         problem.page_size == 0 && problem.value_dim() == problem.head_dim;
}

/// Of tiles of its own, the only ones that it is known of.
int spilled_bytes(const TileProgram& program) {
  const AttentionProblem& problem = program.problem;
  const bool own = program.tile == Flash2Mma::default_options(problem)[program.name].tile &&
                   program.launch == PassLaunch{} && program.variant == Variant::own;
  if (!own || !is_plain(problem) || program.diagonal_slices > 1 || program.single_launch) return 0;
  if (program.name == PassName::forward) return mma_forward_spilled_bytes(mma_dim(problem));
  if (program.name == PassName::dkdv) return mma_dkdv_spilled_bytes(mma_dim(problem));
  return program.name == PassName::dkdvdq ? mma_dkdvdq_spilled_bytes(mma_dim(problem)) : 0;
}

}  // namespace

bool takes_mma_values(const TileProgram& program) {
  return has_mma_values(program.problem) && program.diagonal_slices == 1 && !program.single_launch;
}

int Flash2Mma::bit_reads(const TileProgram& program) {
  if (!is_varied(program.problem)) return 0;
  const bool shares_keys = program.name == PassName::dkdv || program.name == PassName::dkdvdq;
  return shares_keys ? mma_dkdv_shape(mma_dim(program.problem)).warps_m() : 1;
}

std::vector<Boxes> Flash2Mma::boxes(const TileProgram& program) {
  using enum TensorName;
  std::vector<Boxes> all;
  if (program.name == PassName::delta) {
    all = delta_boxes(program.problem);
  } else if (!is_varied(program.problem)) {
    all = by_copies(program, {q, k, v, dout});
    const bool backward = !program.phases.empty() && program.name != PassName::forward;
    if (backward)
      all.insert(all.end(), {copies_or_piece(program.problem, lse), copies_or_piece(program.problem, delta)});
  }
  const auto in_sector = [](TensorName numbers) {
    return Boxes{.tensor = numbers, .rows = 1, .panel_bytes = kSectorBytes};
  };
  if (is_varied(program.problem)) all.insert(all.end(), {in_sector(alibi_slopes), in_sector(sink)});
  return all;
}

namespace {

std::optional<std::string> lack_of_pages(const AttentionProblem& problem) {
  if (problem.page_size == 0) return std::nullopt;
  const FeatureSet asked = required_features(problem);
  for (int i = 0; i < kNumFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    if (Flash2Mma::kLacksInPages.has(feature) && asked.has(feature)) {
      return "reads pages only without " + std::string(to_string(feature)) + ": page_size must be left out";
    }
  }
  if (problem.head_dim % 8 == 0) return std::nullopt;
  return "reads pages only of rows that are whole 16 bytes: head_dim must be a multiple of 8, or page_size "
         "left out";
}

}  // namespace

std::vector<BackwardOrder> Flash2Mma::backward_orders() {
  return {BackwardOrder::fused, BackwardOrder::split, BackwardOrder::single_launch};
}

ProgramOptions Flash2Mma::default_options(const AttentionProblem& problem) {
  const int dim = mma_dim(problem);
  ProgramOptions options;
  options.set_tile(Direction::forward, mma_forward_shape(dim, narrows_tiles(problem)).tile);
  options.set_tile(Direction::backward, mma_dkdv_shape(dim).tile);
  options[PassName::dq].tile = mma_dq_shape(dim).tile;
  options.backward = backward_orders().front();
  // Longest first spares the end of the grid, head after head the L2. On an H200 the backward pass of up to
  // 1024 keys gains 5 to 35 % from the second, and the forward pass of more loses 3 to 9 %.
  if (problem.masked() && problem.seqlen_k > 1024) options.order = TileOrder::longest_first;
  if (problem.masked() && problem.seqlen_k <= 1024) {
    options.order = TileOrder::head_swizzled;
    options.swizzled_heads = heads_that_share_l2(problem);
  }
  return options;
}

std::optional<std::string> Flash2Mma::lack(const AttentionProblem& problem, const ProgramOptions& options) {
  if (options.variant == Variant::own) return lack_of_pages(problem);
  const PassOptions& forward = options[PassName::forward];
  const bool own_tile = forward.tile == mma_forward_shape(mma_head_dim(problem.head_dim)).tile &&
                        forward.launch == PassLaunch{};
  if (problem.dtype == ElementType::fp16 && problem.head_dim <= 128 && problem.head_dim % 8 == 0 &&
      problem.value_dim() == problem.head_dim && own_tile && !narrows_tiles(problem) &&
      problem.key_lengths.empty() && problem.page_size == 0 && options.diagonal_slices == 1) {
    return std::nullopt;
  }
  return "normalises at each step in fp16, up to head_dim 128, on its own tiles and without anything beside "
         "a band";
}

std::vector<PassChoice> Flash2Mma::pass_choices(const AttentionProblem& problem, PassName pass) {
  if (!is_plain(problem)) return {{default_options(problem)[pass].tile}};
  std::vector<PassChoice> all;
  const auto take = [&all](const auto& choices) {
    for (int i = 0; i < choices.count; ++i) all.push_back({choices.shapes[i].tile, choices.launch(i)});
  };
  const int dim = mma_dim(problem);
  if (pass == PassName::forward) take(mma_forward_choices(dim));
  if (pass == PassName::dkdv || pass == PassName::dkdvdq) take(mma_dkdv_choices(dim));
  if (pass == PassName::dq) take(mma_dq_choices(dim));
  if (all.empty()) all.push_back({default_options(problem)[pass].tile});
  return all;
}

std::vector<TileShape> Flash2Mma::tile_choices(const AttentionProblem& problem, PassName pass) {
  std::vector<TileShape> tiles;
  for (const PassChoice& choice : pass_choices(problem, pass)) {
    if (choice.launch == PassLaunch{}) tiles.push_back(choice.tile);
  }
  return tiles;
}

LaunchShape flash2_mma_launch_shape(const TileProgram& program, int compute_capability_major,
                                    bool by_values) {
  const int dim = by_values ? kMmaValueDims.head_dim : mma_dim(program.problem);
  const auto launch_shape = [&](const auto& shape) -> LaunchShape {
    // Stages that were asked for are stated, so that a chip on which they do not fit is seen to lack them.
    const int stages =
        shape.stages > 0 ? shape.stages : stages_that_fit(shape, dim, compute_capability_major);
    std::int64_t bytes = shape.layout(dim, stages).end();
    // A launch asks for more than 48 KiB by what it has of dynamic memory; tables have static memory beside
    // it.
    constexpr std::int64_t kUnasked = 48 * 1024, kTables = 1024;
    const bool has_tables = is_varied(program.problem) || program.problem.page_size > 0;
    if (has_tables && kUnasked - kTables < bytes && bytes <= kUnasked) bytes = kUnasked + 16;
    return {shape.threads(), bytes, shape.ctas_per_sm};
  };
  const auto of_tile = [&](const auto& choices) {
    return launch_shape(choices.shapes[std::max(0, choices.find(program.tile, program.launch))]);
  };
  if (by_values) {
    if (program.name == PassName::forward) return launch_shape(mma_values_forward_shape());
    if (program.name == PassName::dq) return launch_shape(mma_values_dq_shape());
    if (program.phases.empty()) return {kElementwiseThreads, 0};
    return launch_shape(mma_values_dkdv_shape());
  }
  switch (program.name) {
    case PassName::forward:
      return narrows_tiles(program.problem) ? launch_shape(mma_forward_shape(dim, true))
                                            : of_tile(mma_forward_choices(dim));
    case PassName::dkdv:
      if (program.single_launch) {  // the dq pass has the same CTAs
        LaunchShape shape = launch_shape(mma_dkdv_shape(dim));
        shape.shared_bytes =
            std::max(shape.shared_bytes, launch_shape(mma_single_launch_dq_shape(dim)).shared_bytes);
        return shape;
      }
      return of_tile(mma_dkdv_choices(dim));
    case PassName::dkdvdq:
      return of_tile(mma_dkdv_choices(dim));
    case PassName::dq:
      return of_tile(mma_dq_choices(dim));
    default:
      return {kElementwiseThreads, 0};
  }
}

LaunchShape Flash2Mma::launch_shape(const TileProgram& program, const Chip& chip) {
  const int major = chip.compute_capability / 10;
  LaunchShape shape = flash2_mma_launch_shape(program, major, takes_mma_values(program));
  if (major == 9) shape.spilled_bytes = spilled_bytes(program);
  return shape;
}

WarpWork Flash2Mma::warp_work(const TileProgram& program) {
  const bool by_values = takes_mma_values(program);
  const int dim = by_values ? kMmaValueDims.head_dim : mma_dim(program.problem);
  const auto chosen = [&program](const auto& choices) {
    return choices.shapes[std::max(0, choices.find(program.tile, program.launch))];
  };
  const auto of_rows = [&program](const auto& shape, int score_products) -> WarpWork {
    if (shape.tile != program.tile) return {};
    const ProductPart scores{shape.warp_rows(), shape.tile.block_n};
    WarpWork work{.warps = shape.warps, .products = {{shape.warp_rows()}}};
    work.products.insert(work.products.begin(), static_cast<std::size_t>(score_products), scores);
    return work;
  };
  if (program.name == PassName::forward) {
    if (by_values) return of_rows(mma_values_forward_shape(), 1);
    return of_rows(
        narrows_tiles(program.problem) ? mma_forward_shape(dim, true) : chosen(mma_forward_choices(dim)), 1);
  }
  if (program.name == PassName::dq) {
    if (by_values) return of_rows(mma_values_dq_shape(), 2);
    return of_rows(program.single_launch ? mma_single_launch_dq_shape(dim) : chosen(mma_dq_choices(dim)), 2);
  }
  const MmaDkdvShape shape = by_values               ? mma_values_dkdv_shape()
                             : program.single_launch ? mma_dkdv_shape(dim)
                                                     : chosen(mma_dkdv_choices(dim));
  if (shape.tile != program.tile) return {};
  constexpr int kRows = 32, kScoreBytes = 2;
  const ProductPart scores{kRows, shape.warp_queries()}, sums{kRows, dim / shape.warps_m()};
  const ProductPart value_sums{kRows, shape.values(dim) / shape.warps_m()};
  WarpWork work{.warps = shape.warps,
                .waits = 3,  // for Q and dO, for P and dS, and until all are done with them
                .exchanged_bytes = 2 * kScoreBytes * shape.tile.block_m * shape.tile.block_n,
                // Of whole rows alone dQ leaves in slices between the products.
                .adds_apart = program.name == PassName::dkdvdq && program.problem.head_dim != dim,
                .products = {scores, scores, value_sums, sums}};
  if (program.name == PassName::dkdvdq) work.products.push_back({kRows, dim / shape.dq_warps_d()});
  return work;
}

}  // namespace tilescope
