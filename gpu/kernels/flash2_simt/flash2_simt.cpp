// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash2_simt/flash2_simt.hpp"

#include "gpu/registry/asked_by.hpp"

namespace tilescope {

std::vector<BackwardOrder> Flash2Simt::backward_orders() {
  return {BackwardOrder::fused, BackwardOrder::split, BackwardOrder::q_outer};
}

ProgramOptions Flash2Simt::default_options(const AttentionProblem& problem) {
  const Tiles shapes = tiles(padded_dim(problem.head_dim));
  ProgramOptions options;
  options.set_tile(Direction::forward, shapes.forward);
  options.set_tile(Direction::backward, shapes.backward);
  options[PassName::dq].tile = shapes.dq;
  options.backward = backward_orders().front();
  if (problem.masked()) options.order = TileOrder::longest_first;
  return options;
}

std::vector<Boxes> Flash2Simt::boxes(const TileProgram& program) {
  if (program.phases.empty() || program.name == PassName::forward) return {};
  return {copies_or_pieces(program.problem, TensorName::lse),
          copies_or_pieces(program.problem, TensorName::delta)};
}

LaunchShape Flash2Simt::launch_shape(const TileProgram& program) {
  const int dim = padded_dim(program.problem.head_dim);
  LaunchShape shape{.threads_per_cta = cuda_cores::kThreads};
  if (program.name == PassName::forward) {
    shape.shared_bytes = forward_layout(program.tile, dim).bytes();
    shape.ctas_per_sm = forward_ctas_per_sm(dim);
  } else if (!program.phases.empty()) {
    shape.threads_per_cta = cuda_cores::kBackwardGroups * cuda_cores::kThreads;
    shape.shared_bytes = backward_layout(program.tile, dim).bytes();
    shape.ctas_per_sm = cuda_cores::kBackwardCtasPerSm;
  }
  return shape;
}

}  // namespace tilescope
