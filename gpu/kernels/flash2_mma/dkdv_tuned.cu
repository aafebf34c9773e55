// SPDX-License-Identifier: Apache-2.0
// gpu:flash2-mma, backward over kv tiles: the tile shapes that it can be tuned to beside its own.
#include "gpu/kernels/flash2_mma/choices.hpp"
#include "gpu/kernels/flash2_mma/dkdv.cuh"

namespace tilescope::sm80 {
namespace {

template <int kHeadDim, int kChoice>
struct Tuned {
  static constexpr MmaDkdvShape shape = mma_dkdv_choices(kHeadDim).shapes[kChoice];
};

}  // namespace

void launch_flash2_mma_dkdv_tuned(const TileProgram& program, LaunchShape shape,
                                  const KernelArguments& arguments, CUstream_st* stream) {
  dispatch_mma(program.problem, [&]<ElementType kType, int kHeadDim>() {
    constexpr auto kChoices = mma_dkdv_choices(kHeadDim);
    dispatch_choice<kChoices.count>(kChoices.find(program.tile, program.launch), [&]<int kChoice>() {
      using Choice = Tuned<kHeadDim, kChoice>;
      const bool fused = program.name == PassName::dkdvdq;
      launch_pass(fused ? flash2_mma_dkdv<kType, kHeadDim, true, Features::plain, Choice>
                        : flash2_mma_dkdv<kType, kHeadDim, false, Features::plain, Choice>,
                  program, shape, arguments, stream);
    });
  });
}

}  // namespace tilescope::sm80
