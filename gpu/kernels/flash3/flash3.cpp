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
  return options;
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
