// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/standard/standard.hpp"

#include "gpu/registry/tile_check.hpp"

namespace tilescope {

ProgramOptions Standard::default_options(const AttentionProblem& problem) {
  ProgramOptions options = ProgramOptions::with_tile(tile(padded_dim(problem.head_dim)));
  options.softmax_reads = row_reads(PassName::softmax, problem.seqlen_k);
  options.dscores_reads = row_reads(PassName::dscores, problem.seqlen_k);
  return options;
}

std::optional<std::string> Standard::reason(const AttentionProblem& problem, Direction direction,
                                            const ProgramOptions& options) {
  if (is_fp8(problem.dtype)) {
    return "computes fp32, fp16 and bf16, not " + std::string(to_string(problem.dtype));
  }
  return tile_refusal(problem, direction, options, default_options(problem));
}

LaunchShape Standard::launch_shape(const TileProgram& program) {
  if (program.matmuls > 0) {
    const int dim = padded_dim(program.problem.head_dim);
    return {.threads_per_cta = simt::kThreads,
            .shared_bytes = ProductLayout{program.tile, dim}.bytes(),
            .ctas_per_sm = kProductCtasPerSm};
  }
  const std::int64_t seqlen_k = program.problem.seqlen_k;
  const bool fits = row_fits(program.name, seqlen_k);
  return {kRowThreads, RowLayout{padded_row(seqlen_k), fits ? strips(program.name) : 0}.bytes()};
}

}  // namespace tilescope
