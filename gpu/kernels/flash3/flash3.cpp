// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash3/flash3.hpp"

#include "gpu/kernels/elementwise/elementwise.hpp"

namespace tilescope {
namespace {

Flash3ForwardShape forward_shape(const AttentionProblem& problem) {
  return flash3_forward_shape(static_cast<int>(problem.head_dim), Flash3::short_rows(problem));
}

Flash3Fp8Shape fp8_shape(const AttentionProblem& problem, Fp8Sums sums) {
  return flash3_fp8_shape(static_cast<int>(problem.head_dim), sums, Flash3::short_rows(problem));
}

bool can_stay(const AttentionProblem& problem) {
  return flash3_backward_shape(static_cast<int>(problem.head_dim), false, true).stays &&
         flash3_backward_stays(problem.visible_pairs(), problem.batch * problem.heads * problem.seqlen_q);
}

/// Where CTAs stay, in the default order: in another, long and short kv tiles might not come in turn.
DqStart dq_start(const AttentionProblem& problem, const ProgramOptions& options) {
  const bool in_turn = !problem.masked() || options.fused_heads_per_section == 1;
  if (can_stay(problem) && in_turn) return DqStart::claimed;
  return flash3_stores_in_order(static_cast<int>(problem.head_dim), problem.masked()) ? DqStart::in_order
                                                                                      : DqStart::cleared;
}

}  // namespace

bool Flash3::short_rows(const AttentionProblem& problem) {
  return flash3_short_rows(problem.visible_pairs(), problem.batch * problem.heads * problem.seqlen_q);
}

ProgramOptions Flash3::default_options(const AttentionProblem& problem) {
  ProgramOptions options;
  options.set_tile(Direction::forward, is_fp8(problem.dtype) ? fp8_shape(problem, Fp8Sums::two_level).tile
                                                             : forward_shape(problem).tile);
  options.set_tile(Direction::backward, flash3_backward_shape(static_cast<int>(problem.head_dim)).tile);
  options.backward = BackwardOrder::fused;
  options.scan = Scan::descending;
  options.work_counter = true;
  if (is_fp8(problem.dtype)) options.fp8_sums = Fp8Sums::two_level;
  if (problem.masked()) {
    options.order = TileOrder::head_swizzled;
    options.heads_per_section = flash3_heads_per_section(static_cast<int>(problem.head_dim), problem.seqlen_k,
                                                         problem.batch * problem.heads, problem.group_size());
    options.fused_heads_per_section = flash3_backward_heads_per_section(
        static_cast<int>(problem.head_dim), problem.seqlen_q, problem.batch * problem.heads_kv,
        problem.group_size(), short_rows(problem));
  }
  options.dq_flags = Flash3BackwardShape::consumers();
  options.dq_start = dq_start(problem, options);
  return options;
}

bool Flash3::stays(const TileProgram& program) {
  return can_stay(program.problem) && program.grid.heads_in_turn();
}

std::vector<Boxes> Flash3::boxes(const TileProgram& program) {
  using enum TensorName;
  const int bytes = element_bytes(program.problem.dtype);
  const auto boxes = [bytes](TensorName tensor, const gpu::sm90::PanelTile& tile) {
    return Boxes{tensor, tile.rows, tile.panel_cols() * bytes};
  };
  if (program.name == PassName::forward && is_fp8(program.problem.dtype)) {
    const Flash3Fp8Shape shape = fp8_shape(program.problem, program.fp8_sums);
    return {boxes(q, shape.q_tile()), boxes(k, shape.kv_tile()), boxes(v, shape.kv_tile())};
  }
  if (program.name == PassName::forward) {
    const Flash3ForwardShape shape = forward_shape(program.problem);
    return {boxes(q, shape.q_tile()), boxes(k, shape.kv_tile()), boxes(v, shape.kv_tile())};
  }
  if (program.name != PassName::dkdvdq) return {};
  const Flash3BackwardShape shape = flash3_backward_shape(static_cast<int>(program.problem.head_dim),
                                                          program.ordered, short_rows(program.problem));
  return {boxes(q, shape.q_tile()), boxes(dout, shape.q_tile()), boxes(k, shape.kv_tile()),
          boxes(v, shape.kv_tile())};
}

LaunchShape Flash3::launch_shape(const TileProgram& program) {
  const int head_dim = static_cast<int>(program.problem.head_dim);
  if (program.name == PassName::forward && is_fp8(program.problem.dtype)) {
    const Flash3Fp8Shape shape = fp8_shape(program.problem, program.fp8_sums);
    return {shape.threads(), Flash3Fp8Layout(shape).end, 1};
  }
  if (program.name == PassName::forward) {
    const Flash3ForwardShape shape = forward_shape(program.problem);
    return {shape.threads(), Flash3ForwardLayout(shape).end, 1};
  }
  if (program.name == PassName::dkdvdq) {
    const Flash3BackwardShape shape = flash3_backward_shape(head_dim);
    return {Flash3BackwardShape::threads(), Flash3BackwardLayout(shape).end, 1};
  }
  return {kElementwiseThreads, 0};
}

}  // namespace tilescope
