// SPDX-License-Identifier: Apache-2.0
// gpu:flash2-mma, forward, as FlashAttention's Algorithm 1 keeps O: normalised at each step. What
// FlashAttention-2 saves beside the products is the difference to the kernel's own pass, on the same tile.
#include "gpu/kernels/flash2_mma/choices.hpp"
#include "gpu/kernels/flash2_mma/forward.cuh"

namespace tilescope::sm80 {
namespace {

template <int kHeadDim>
struct Normalised {
  static constexpr MmaForwardShape shape = mma_forward_shape(kHeadDim);
  using NormalisesEachStep = void;
};

}  // namespace

void launch_flash2_mma_forward_normalised(const TileProgram& program, LaunchShape shape,
                                          const KernelArguments& arguments, CUstream_st* stream) {
  const auto launch = [&]<int kHeadDim>() {
    launch_pass(flash2_mma_forward<ElementType::fp16, kHeadDim, Features::plain, Normalised<kHeadDim>>,
                program, shape, arguments, stream);
  };
  if (program.problem.head_dim <= 64) return launch.template operator()<64>();
  launch.template operator()<128>();
}

}  // namespace tilescope::sm80
