// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:flash3-basic, each instantiated in a source of its own for sm_90a alone
// (gpu/CMakeLists.txt).
#pragma once

#include "gpu/primitives/sm90/wgmma.cuh"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope::flash3_basic {

/// Passes forward and dkdvdq, or to be observed.
template <gpu::sm90::WgmmaType kType, int kHeadDim, bool kObserved>
void launch(const TileProgram&, const KernelArguments&, CUstream_st*);

/// Variant::unspecialised of the forward pass.
template <gpu::sm90::WgmmaType kType, int kHeadDim, bool kObserved>
void launch_unspecialised(const TileProgram&, const KernelArguments&, CUstream_st*);

}  // namespace tilescope::flash3_basic
