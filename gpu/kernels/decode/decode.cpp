// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/decode.hpp"

namespace tilescope {

ProgramOptions Decode::default_options(const AttentionProblem& problem) {
  ProgramOptions options = ProgramOptions::with_tile(shape(problem.head_dim).tile());
  options.splits = {SplitPolicy::Kind::automatic, 0};
  options.pack_gqa = problem.group_size() > 1 && !problem.descales.by_block();
  return options;
}

bool Decode::first_choice(const AttentionProblem& problem) {
  return problem.seqlen_q * problem.group_size() <= DecodeShape::kRows;
}

LaunchShape Decode::launch_shape(const TileProgram& program) {
  if (program.name == PassName::combine) return {combine_threads_of(program.problem.head_dim), 0};
  const DecodeShape forward = shape(program.problem.head_dim);
  return {forward.threads(), forward.end(), DecodeShape::kCtasPerSm};
}

}  // namespace tilescope
