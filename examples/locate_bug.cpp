// SPDX-License-Identifier: Apache-2.0
// A kernel with a planted bug, and where it first goes wrong.
//
// The judge says that the output is wrong, and by how much. That alone points nowhere: the error of one tile
// reaches every later row sum. So the kernel is observed, tile by tile, and its state held against fp64 for
// the same tiles in the same order: `tilescope verify --kernel NAME --locate` does this for every registered
// kernel.
#include <cstdio>

#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/judge/locate.hpp"
#include "cpu_ref/kernels/kernel.hpp"

using namespace tilescope;

namespace {

const Kernel& right_kernel() { return cpu_kernels()[2]; }  // cpu:flash2

/// FlashAttention-2, but for one row of K that it takes for zeros: the last one of the third tile of 64.
void run_with_bug(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                  TileObserver* observer) {
  constexpr std::int64_t kBadKey = 191;
  Tensor& k = tensors[TensorName::k];
  const Tensor kept = k.as(k.dtype());
  for (std::int64_t d = 0; d < k.shape().cols; ++d) k.set(k.row_index(0, 0, kBadKey) + d, 0.0f);
  right_kernel().run(options, direction, tensors, observer);
  k = kept.as(kept.dtype());
}

}  // namespace

int main() {
  const AttentionProblem problem{.heads = 2, .heads_kv = 2, .seqlen_q = 256, .seqlen_k = 256, .head_dim = 64};
  Kernel kernel = right_kernel();
  kernel.name = "example:one-key-lost";
  kernel.run = run_with_bug;
  const ProgramOptions options = ProgramOptions::with_tile({128, 64});

  Reference reference(problem, InputKind::normal, Direction::forward);
  reference.run(kernel, options, Direction::forward);
  const Verdict verdict = reference.judge(Direction::forward);
  std::printf("judged against exact attention: %s\n", verdict.passed() ? "right" : "WRONG");

  const auto divergence = locate(reference, kernel, options, Direction::forward);
  if (!divergence) return 1;
  std::printf("first divergence: %s\n", describe(*divergence, problem).c_str());
  return 0;
}
