// SPDX-License-Identifier: Apache-2.0
// What each instance of flash3's forward pass is compiled from: the kernel and its launch.
#pragma once

#include "gpu/kernels/flash3/forward/forward.cuh"
#include "gpu/kernels/flash3/forward/launch.cuh"
#include "gpu/launch/launch.cuh"

namespace tilescope::gpu {

template <sm90::WgmmaType kType, typename Choice, bool kObserved>
void launch_flash3_forward(const Flash3ArgumentsOf<Choice::shape.mods, Choice::shape.paged>& arguments,
                           int sms, cudaStream_t stream) {
  launch_ctas(flash3_forward<kType, Choice, kObserved>, PassName::forward,
              persistent_ctas(arguments.grid.size(), sms),
              {Choice::shape.threads(), Flash3ForwardLayout(Choice::shape).end}, stream, arguments);
}

}  // namespace tilescope::gpu
