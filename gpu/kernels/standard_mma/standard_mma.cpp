// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/standard_mma/standard_mma.hpp"

#include "gpu/kernels/standard/standard.hpp"
#include "gpu/registry/asked_by.hpp"

namespace tilescope {

ProgramOptions StandardMma::default_options(const AttentionProblem& problem) {
  ProgramOptions options = ProgramOptions::with_tile(shape(mma_head_dim(problem.head_dim)).tile);
  for (const PassName pass : {PassName::softmax, PassName::dscores}) {
    options[pass].row_reads = Standard::row_reads(pass, problem.seqlen_k);
  }
  return options;
}

std::vector<Boxes> StandardMma::boxes(const TileProgram& program) {
  using enum TensorName;
  std::vector<Boxes> all = by_copies(program, {q, k, v, dout});
  for (const Boxes& matrix : padded_matrices(program.problem)) all.push_back(matrix);
  return all;
}

LaunchShape StandardMma::launch_shape(const TileProgram& program) {
  if (program.products.count() == 0) return Standard::launch_shape(program);
  const int head_dim = mma_head_dim(program.problem.head_dim);
  return {shape(head_dim).threads(), layout(head_dim).end(), shape(head_dim).ctas_per_sm};
}

}  // namespace tilescope
