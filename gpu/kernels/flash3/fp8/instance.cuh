// SPDX-License-Identifier: Apache-2.0
// What each instance of flash3's forward pass in fp8 is compiled from: the kernel and its launch.
#pragma once

#include "gpu/kernels/flash3/fp8/forward.cuh"
#include "gpu/kernels/flash3/fp8/launch.cuh"
#include "gpu/launch/launch.cuh"

namespace tilescope::gpu {

template <sm90::WgmmaType kType, typename Choice, bool kObserved>
void launch_flash3_fp8_forward(const Flash3Fp8Arguments& arguments, int sms, cudaStream_t stream) {
  launch_ctas(flash3_fp8_forward<kType, Choice, kObserved>, PassName::forward,
              persistent_ctas(arguments.grid.size(), sms),
              {Choice::shape.threads(), Flash3Fp8Layout(Choice::shape).end}, stream, arguments);
}

}  // namespace tilescope::gpu
