// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash3_basic/flash3_basic.hpp"

#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/registry/asked_by.hpp"

namespace tilescope {

using namespace flash3_basic;

ProgramOptions Flash3Basic::default_options(const AttentionProblem& problem) {
  ProgramOptions options;
  options.set_tile(Direction::forward, ForwardShape::tile);
  options.set_tile(Direction::backward, BackwardShape{compiled_head_dim(problem.head_dim)}.tile);
  options.backward = BackwardOrder::fused;
  if (problem.masked()) options.order = TileOrder::longest_first;
  return options;
}

std::optional<std::string> Flash3Basic::lack(const AttentionProblem& problem, const ProgramOptions& options) {
  const bool compiled =
      problem.dtype == ElementType::fp16 && compiled_head_dim(problem.head_dim) == kVariantHeadDim;
  if (options.variant == Variant::own || compiled) return std::nullopt;
  return "has its variant in fp16 at head dimensions above 64 alone";
}

std::vector<Boxes> Flash3Basic::boxes(const TileProgram& program) {
  using enum TensorName;
  const auto box = [](TensorName tensor, const gpu::sm90::PanelTile& tile) {
    return Boxes{tensor, tile.rows, tile.panel_cols() * tile.element_bytes};
  };
  const auto stored = [&box](TensorName tensor, const gpu::sm90::PanelTile& tile) {
    Boxes boxes = box(tensor, tile);
    boxes.asked_by = AskedBy::stored_boxes;
    return boxes;
  };
  const int head_dim = compiled_head_dim(program.problem.head_dim);
  if (program.name == PassName::forward) {
    const ForwardShape shape{head_dim};
    return {box(q, shape.q_tile()), box(k, shape.kv_tile()), box(v, shape.kv_tile()),
            stored(out, shape.q_tile())};
  }
  if (program.name == PassName::delta) return delta_boxes(program.problem);
  if (program.name != PassName::dkdvdq) return {};
  const BackwardShape shape{head_dim};
  return {box(q, shape.q_tile()),
          box(dout, shape.q_tile()),
          box(k, shape.kv_tile()),
          box(v, shape.kv_tile()),
          warp_piece(lse),
          warp_piece(delta),
          stored(dk, shape.kv_tile()),
          stored(dv, shape.kv_tile())};
}

LaunchShape Flash3Basic::launch_shape(const TileProgram& program) {
  const int head_dim = compiled_head_dim(program.problem.head_dim);
  if (program.name == PassName::forward) {
    const int threads = program.variant == Variant::unspecialised ? kConsumerThreads : kThreads;
    return {threads, ForwardLayout(ForwardShape{head_dim}).end, 1};
  }
  if (program.name == PassName::dkdvdq) return {kThreads, BackwardLayout(BackwardShape{head_dim}).end, 1};
  return {kElementwiseThreads, 0};
}

WarpWork Flash3Basic::warp_work(const TileProgram& program) {
  constexpr int kWarps = 4 * kConsumers, kRows = 64, kScoreBytes = 2;  // a warpgroup waits for its WGMMAs
  const TileShape tile = program.tile;
  if (program.name == PassName::forward)
    return {.warps = kWarps, .products = {{kRows, tile.block_n}, {kRows}}};
  const ProductPart scores{kRows, tile.block_m};
  return {.warps = kWarps,
          .waits = 3,  // for Q and dO, for dS, for a place to put dQ
          .exchanged_bytes = kScoreBytes * tile.block_m * tile.block_n,
          .products = {scores, scores, {kRows}, {kRows}, {kRows, kRows}}};
}

}  // namespace tilescope
