// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/standard/standard.hpp"

#include "gpu/registry/asked_by.hpp"

namespace tilescope {

ProgramOptions Standard::default_options(const AttentionProblem& problem) {
  ProgramOptions options = ProgramOptions::with_tile(tile(padded_dim(problem.head_dim)));
  options[PassName::softmax].row_reads = row_reads(PassName::softmax, problem.seqlen_k);
  options[PassName::dscores].row_reads = row_reads(PassName::dscores, problem.seqlen_k);
  return options;
}

std::vector<Boxes> Standard::boxes(const TileProgram& program) {
  std::vector<Boxes> all = EarlyRung::boxes(program);
  for (const Boxes& matrix : padded_matrices(program.problem)) all.push_back(matrix);
  return all;
}

LaunchShape Standard::launch_shape(const TileProgram& program) {
  if (program.products.count() > 0) {
    const int dim = padded_dim(program.problem.head_dim);
    return {.threads_per_cta = cuda_cores::kThreads,
            .shared_bytes = ProductLayout{program.tile, dim}.bytes(),
            .ctas_per_sm = kProductCtasPerSm};
  }
  const std::int64_t seqlen_k = program.problem.seqlen_k;
  const bool fits = row_fits(program.name, seqlen_k);
  return {kRowThreads, RowLayout{padded_row(seqlen_k), fits ? strips(program.name) : 0}.bytes()};
}

}  // namespace tilescope
