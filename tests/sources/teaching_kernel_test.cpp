// SPDX-License-Identifier: Apache-2.0
// The backward pass of the teaching kernel in CUDA: fp32, tiles of 32 x 32, CTAs that own rows of queries and
// add to dK and dV. Its errors against a naive implementation are about 1e-8; what is random in them shows in
// the root mean square.
#include <doctest/doctest.h>

#include "tests/sources/source_matrix.hpp"

namespace tilescope {
namespace {

TEST_CASE("the teaching kernel: fp32, 32 x 32 tiles, queries outside, errors of some 1e-8") {
  for (const std::int64_t seqlen : {64, 128, 256}) {
    for (const std::int64_t head_dim : {32, 64}) {
      const AttentionProblem problem{.seqlen_q = seqlen, .seqlen_k = seqlen, .head_dim = head_dim};
      CAPTURE(describe(problem));
      Reference reference(testing::source_inputs(problem, Direction::backward, 0.5f), Direction::backward);
      const Kernel& kernel = find_kernel("cpu:flash2");
      ProgramOptions options = ProgramOptions::with_tile({32, 32});
      options.backward = BackwardOrder::q_outer;
      for (const TensorVerdict& tensor : reference.judge(kernel, options, Direction::backward).tensors) {
        CAPTURE(to_string(tensor.tensor));
        CAPTURE(tensor.error.rmse);
        CHECK(tensor.passed);
        CHECK((tensor.tensor == TensorName::lse || tensor.error.rmse <= 1e-7));
      }
    }
  }
}

}  // namespace
}  // namespace tilescope
