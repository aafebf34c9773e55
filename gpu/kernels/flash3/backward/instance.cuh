// SPDX-License-Identifier: Apache-2.0
// What each instance of flash3's backward pass is compiled from: the kernel and its launch.
#pragma once

#include "gpu/kernels/flash3/backward/backward.cuh"
#include "gpu/kernels/flash3/backward/launch.cuh"
#include "gpu/launch/launch.cuh"

namespace tilescope::gpu {

template <sm90::WgmmaType kType, typename Choice, bool kObserved>
void launch_flash3_dkdvdq(const Flash3BackwardArgumentsOf<Choice::shape.tables>& arguments, int ctas,
                          cudaStream_t stream) {
  constexpr Flash3BackwardShape kShape = kObserved ? Choice::shape.together() : Choice::shape;
  // It waits for the kernel before it by itself.
  launch_ctas(flash3_dkdvdq<kType, Choice, kObserved>, PassName::dkdvdq,
              {.ctas = dim3(static_cast<unsigned>(ctas)), .early = true},
              {kShape.threads(), Flash3BackwardLayout(kShape).end}, stream, arguments);
}

}  // namespace tilescope::gpu
