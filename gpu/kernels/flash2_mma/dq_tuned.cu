// SPDX-License-Identifier: Apache-2.0
// gpu:flash2-mma, backward over q tiles: the tile shapes that it can be tuned to beside its own.
#include "gpu/kernels/flash2_mma/choices.hpp"
#include "gpu/kernels/flash2_mma/dq.cuh"

namespace tilescope::sm80 {
namespace {

template <int kHeadDim, int kChoice>
struct Tuned {
  static constexpr MmaDqShape shape = mma_dq_choices(kHeadDim).shapes[kChoice];
};

}  // namespace

void launch_flash2_mma_dq_tuned(const TileProgram& program, LaunchShape shape,
                                const KernelArguments& arguments, CUstream_st* stream) {
  dispatch_mma(program.problem, [&]<ElementType kType, int kHeadDim>() {
    constexpr auto kChoices = mma_dq_choices(kHeadDim);
    dispatch_choice<kChoices.count>(kChoices.find(program.tile, program.launch), [&]<int kChoice>() {
      launch_pass(flash2_mma_dq<kType, kHeadDim, Features::plain, Tuned<kHeadDim, kChoice>>, program, shape,
                  arguments, stream);
    });
  });
}

}  // namespace tilescope::sm80
