// SPDX-License-Identifier: Apache-2.0
// gpu:flash1 at the tile shapes that it has beside its own.
#include "gpu/kernels/flash1/launch.cuh"

namespace tilescope {
namespace {

template <typename Element, int kIndex = 0>
void launch_forward(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  constexpr TileShape kTile = Flash1::kTunedForward[kIndex];
  if (program.tile == kTile) {
    return launch_pass(cuda_cores::flash1_forward<Element, Flash1::kTunedDim, kTile.block_m, kTile.block_n,
                                                  Flash1::kForwardGroups, false>,
                       program, Flash1::launch_shape(program), arguments, stream);
  }
  if constexpr (kIndex + 1 < std::size(Flash1::kTunedForward)) {
    launch_forward<Element, kIndex + 1>(program, arguments, stream);
  }
}

template <typename Element, int kIndex = 0>
void launch_backward(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  constexpr TileShape kTile = Flash1::kTunedBackward[kIndex];
  if (program.tile == kTile) {
    return launch_pass(
        cuda_cores::flash1_backward<Element, Flash1::kTunedDim, kTile.block_m, kTile.block_n, false>, program,
        Flash1::launch_shape(program), arguments, stream);
  }
  if constexpr (kIndex + 1 < std::size(Flash1::kTunedBackward)) {
    launch_backward<Element, kIndex + 1>(program, arguments, stream);
  }
}

}  // namespace

void launch_flash1_tuned(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  const auto launch = [&]<typename Element>() {
    (program.name == PassName::forward ? launch_forward<Element>
                                       : launch_backward<Element>)(program, arguments, stream);
  };
  if (program.problem.dtype == ElementType::fp32) return launch.template operator()<float>();
  launch.template operator()<__half>();
}

}  // namespace tilescope
