// SPDX-License-Identifier: Apache-2.0
// Somebody's program: attention by a kernel and by the judge, and its bytes by formula.
#include <cmath>
#include <cstdio>

#include "cpu_ref/judge/exact_attention.hpp"
#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#ifdef WITH_MODEL
#include "analysis/model/counts/closed_form.hpp"
#endif

int main() {
  using namespace tilescope;
  const AttentionProblem problem{.seqlen_q = 40, .seqlen_k = 40, .head_dim = 16};
  const Kernel& kernel = cpu_kernels().back();
  const ProgramOptions options = kernel.default_options(problem);
  TensorSet tensors(problem);
  fill_random_inputs(tensors, Direction::forward);
  kernel.run(options, Direction::forward, tensors, nullptr);
  const ExactAttention exact = exact_attention(tensors, Direction::forward);
  double worst = 0;
  for (std::size_t i = 0; i < exact.out.size(); ++i) {
    worst = std::fmax(worst, std::fabs(exact.out[i] - tensors[TensorName::out].floats()[i]));
  }
#ifdef WITH_MODEL
  std::int64_t bytes = 0;
  for (const TileProgram& program : kernel.programs(Direction::forward, problem, options)) {
    bytes += closed_form_bytes(program).sm_l2_read_bytes;
  }
  if (bytes != 3 * 40 * 16 * 4) return 2;  // one tile: q, k and v once
#endif
  std::printf("%s is off by %g at most\n", kernel.name.data(), worst);
  return worst < 1e-5 ? 0 : 1;
}
