// SPDX-License-Identifier: Apache-2.0
// The launch of gpu:mla-decode's forward pass on Hopper, each instantiated in a source of its own for sm_90a
// alone (gpu/CMakeLists.txt).
#pragma once

#include "gpu/kernels/decode/mla_wgmma/shape.hpp"
#include "gpu/primitives/sm90/wgmma.cuh"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

struct DecodeArguments;

/// @tparam kObserved  logs the tiles that it visits
template <gpu::sm90::WgmmaType kType, bool kPaged, bool kObserved>
void launch_mla_wgmma(const TileProgram&, const KernelArguments&, const DecodeArguments&, CUstream_st*);

}  // namespace tilescope
